package interop;

import java.io.RandomAccessFile;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;

/** A commit log as RocketMQ's decoder reads it, a line a message; the store may be in use. */
final class Dump {
    /** In place of a message's magic: the rest of the segment is not used. */
    private static final int FILLER = 0xcbd43194;

    private final boolean marks;
    private long messages;

    private Dump(boolean marks) {
        this.marks = marks;
    }

    static void run(Options options) throws Exception {
        Dump dump = new Dump(options.has("marks"));
        List<Path> segments;
        try (var files = Files.list(Path.of(options.text("store"), "commitlog"))) {
            segments = files.filter(file -> file.getFileName().toString().matches("\\d{20}")).sorted().toList();
        }
        for (Path segment : segments) {
            if (!dump.segment(segment)) break;
        }
    }

    /** Returns whether the log goes on behind this segment. */
    private boolean segment(Path file) throws Exception {
        String name = file.getFileName().toString();
        long base = Long.parseLong(name);
        try (FileChannel channel = new RandomAccessFile(file.toFile(), "r").getChannel()) {
            ByteBuffer all = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
            int at = 0;
            while (all.capacity() - at >= 8) {
                int size = all.getInt(at), magic = all.getInt(at + 4);
                if (magic == FILLER) {
                    if (marks) Output.line(Output.map("blank", base + at, "size", size, "segment", name));
                    return true;
                }
                MessageExt message = size <= 0 || size > all.capacity() - at ? null : Stores.decode(all.slice(at, size));
                if (message == null) {
                    if (marks) Output.line(Output.map("end", base + at, "sizeWord", size, "magicWord", hex(magic), "messages", messages));
                    return false;
                }
                // The decoder changes the flags of what it has read.
                Output.line(line(message, magic, all.getInt(at + 36)));
                messages++;
                at += size;
            }
        }
        return true;
    }

    private static Map<String, Object> line(MessageExt m, int magic, int sysFlag) throws Exception {
        Map<String, String> properties = m.getProperties() == null ? new HashMap<>() : new HashMap<>(m.getProperties());
        String text = properties.remove(Stores.PROPERTIES_STRING);
        byte[] body = m.getBody() == null ? new byte[0] : m.getBody();
        return Output.map("physicOffset", m.getCommitLogOffset(), "size", m.getStoreSize(), "magic", hex(magic), "bodyCRC", m.getBodyCRC(),
            "queueId", m.getQueueId(), "flag", m.getFlag(), "queueOffset", m.getQueueOffset(), "sysFlag", sysFlag,
            "bornTimestamp", m.getBornTimestamp(), "bornHost", host(m.getBornHost()),
            "storeTimestamp", m.getStoreTimestamp(), "storeHost", host(m.getStoreHost()), "reconsumeTimes", m.getReconsumeTimes(),
            "preparedTransactionOffset", m.getPreparedTransactionOffset(), "topic", m.getTopic(),
            "properties", new TreeMap<>(properties), "propertiesString", text == null ? "" : text, "bodyLength", body.length,
            "bodySha256", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body)), "offsetMsgId", m.getMsgId());
    }

    private static String host(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + "|" + internet.getPort();
    }

    private static String hex(int word) {
        return String.format("0x%08x", word);
    }
}
