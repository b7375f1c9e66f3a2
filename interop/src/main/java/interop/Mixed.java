package interop;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.*; // MessageExtBrokerInner is here in 5.x, and
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.*; // here in 4.x

/**
 * Messages of every shape that a log may hold, in turn; but for the timestamps the seed decides each byte.
 *
 * <p>The specification is {@code name=value,...}: {@code seed}, {@code bytes} that the log grows by (0: for ever), {@code max_body}
 * of the large bodies, {@code pause_ms} after each put, {@code v2=0} without long topics, {@code v6=0} without IPv6 hosts.
 */
final class Mixed {
    private static final String[] TAGS = {"TagA", "标签", "étiquette", "Тег", "タグ", "tag-🚀", ""};

    private final DefaultMessageStore store;
    private final Random random;
    private final long bytes, pause;
    private final int maxBody;
    private final boolean longTopics, v6;
    private final Map<String, Object> statuses = new TreeMap<>(), kinds = new TreeMap<>();
    private int puts;
    private long last; // offset of the message before

    Mixed(DefaultMessageStore store, String specification) {
        Map<String, String> given = Options.pairs(specification, "seed", "bytes", "max_body", "pause_ms", "v2", "v6");
        this.store = store;
        random = new Random(Long.parseLong(given.getOrDefault("seed", "1")));
        bytes = Long.parseLong(given.getOrDefault("bytes", "4194304"));
        maxBody = Integer.parseInt(given.getOrDefault("max_body", "100000"));
        pause = Long.parseLong(given.getOrDefault("pause_ms", "0"));
        longTopics = given.getOrDefault("v2", "1").equals("1") && Stores.LONG_TOPICS;
        v6 = given.getOrDefault("v6", "1").equals("1");
    }

    Map<String, Object> run() throws Exception {
        long start = store.getMaxPhyOffset();
        while (bytes == 0 || store.getMaxPhyOffset() - start < bytes) {
            one();
            if (pause > 0) Thread.sleep(pause);
        }
        return Output.map("event", "mixed", "puts", puts, "status", statuses, "kinds", kinds, "max_offset", store.getMaxPhyOffset());
    }

    private void one() throws Exception {
        MessageExtBrokerInner m = message();
        switch (puts % 16) {
            case 1 -> {
                m.setBody(new byte[0]);
                put("empty body", m);
            }
            case 2 -> {
                m.setTopic("主题-тема-" + random.nextInt(3));
                put("unicode topic", m);
            }
            case 3 -> {
                int level = 1 + random.nextInt(18);
                m.setDelayTimeLevel(level);
                Stores.delay(m, level);
                put("delayed", m);
            }
            case 4 -> {
                MessageAccessor.putProperty(m, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
                transaction("prepared", m, MessageSysFlag.TRANSACTION_PREPARED_TYPE, 0);
            }
            case 5 -> transaction("commit", m, MessageSysFlag.TRANSACTION_COMMIT_TYPE, last);
            case 6 -> transaction("rollback", m, MessageSysFlag.TRANSACTION_ROLLBACK_TYPE, last);
            case 7 -> batch("batch", false);
            case 8 -> compressed(m, CompressionType.ZLIB);
            case 9 -> compressed(m, CompressionType.LZ4);
            case 10 -> compressed(m, CompressionType.ZSTD);
            case 11 -> {
                if (v6) setHosts(m, true);
                put(v6 ? "v6 hosts" : "plain", m);
            }
            case 12 -> {
                if (longTopics) m.setTopic("T".repeat(128 + random.nextInt(120)) + random.nextInt(2));
                put(longTopics ? "long topic" : "plain", m);
            }
            case 13 -> {
                m.setBody(bytes(maxBody / 3 + random.nextInt(maxBody - maxBody / 3 + 1)));
                put("large body", m);
            }
            case 14 -> {
                m.getProperties().clear();
                m.setFlag(random.nextInt());
                m.setReconsumeTimes(random.nextInt(16));
                count("no properties", store.putMessage(m));
            }
            case 15 -> batch(v6 ? "v6 batch" : "batch", v6);
            default -> put("plain", m);
        }
    }

    private MessageExtBrokerInner message() throws Exception {
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        m.setTopic("topic-" + random.nextInt(5));
        m.setQueueId(random.nextInt(8));
        m.setBody(bytes(random.nextInt(random.nextInt(10) == 0 ? 20000 : 2000)));
        m.setBornTimestamp(System.currentTimeMillis() - random.nextInt(1000));
        setHosts(m, false);
        m.setFlag(random.nextInt(4) == 0 ? random.nextInt() : 0);
        String tag = TAGS[random.nextInt(TAGS.length)];
        if (!tag.isEmpty()) m.setTags(tag);
        m.setKeys("key-" + puts + " ключ" + random.nextInt(100) + " 键");
        m.putUserProperty("user-属性", "значение ☃ " + Integer.toHexString(random.nextInt()));
        if (random.nextInt(8) == 0) m.putUserProperty("long", "é".repeat(1 + random.nextInt(3000)));
        return m;
    }

    private void put(String kind, MessageExtBrokerInner m) {
        m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
        m.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, m.getTags()));
        count(kind, store.putMessage(m));
    }

    private void transaction(String kind, MessageExtBrokerInner m, int type, long prepared) {
        m.setSysFlag(m.getSysFlag() | type);
        m.setPreparedTransactionOffset(prepared);
        put(kind, m);
    }

    private void compressed(MessageExtBrokerInner m, CompressionType type) throws Exception {
        byte[] plain = ("compress me " + puts + " ").repeat(50 + random.nextInt(200)).getBytes(StandardCharsets.UTF_8);
        m.setBody(CompressorFactory.getCompressor(type).compress(plain, 5));
        m.setSysFlag(m.getSysFlag() | MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag());
        put("compressed " + type, m);
    }

    private void batch(String kind, boolean six) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 2 + random.nextInt(5); i > 0; i--) {
            Message m = new Message("batch-topic", TAGS[random.nextInt(TAGS.length)], "batch-" + puts + "-" + i, bytes(random.nextInt(3000)));
            m.setFlag(random.nextInt(9));
            messages.add(m);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic("batch-topic");
        batch.setQueueId(random.nextInt(4));
        batch.setBornTimestamp(System.currentTimeMillis());
        setHosts(batch, six);
        batch.setBody(MessageBatch.generateFromList(messages).encode());
        count(kind, store.putMessages(batch));
    }

    private void count(String kind, PutMessageResult result) {
        puts++;
        statuses.merge(result.getPutMessageStatus().name(), 1, (a, b) -> (int) a + (int) b);
        kinds.merge(kind, 1, (a, b) -> (int) a + (int) b);
        if (result.getAppendMessageResult() != null) last = result.getAppendMessageResult().getWroteOffset();
    }

    /** Of the two hosts, one or the other or both are IPv6. */
    private void setHosts(MessageExt m, boolean six) throws Exception {
        byte[] four = bytes(4);
        four[0] = 10;
        InetAddress born = InetAddress.getByAddress(four), stored = InetAddress.getByAddress(new byte[] {(byte) 192, (byte) 168, 0, four[1]});
        if (six) {
            byte[] sixteen = bytes(16);
            sixteen[0] = 0x20;
            sixteen[1] = 0x01;
            int which = random.nextInt(3);
            if (which != 1) born = InetAddress.getByAddress(sixteen);
            if (which != 0) stored = InetAddress.getByAddress(sixteen);
        }
        m.setBornHost(new InetSocketAddress(born, 1024 + random.nextInt(60000)));
        m.setStoreHost(new InetSocketAddress(stored, 10911));
    }

    private byte[] bytes(int n) {
        byte[] bytes = new byte[n];
        random.nextBytes(bytes);
        return bytes;
    }
}
