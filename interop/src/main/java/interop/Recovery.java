package interop;

import java.io.File;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ's own recovery of a store, and a reading of all that its queues hold. */
final class Recovery {
    private Recovery() { }

    static void run(Options options) throws Exception {
        if (options.has("read") && options.has("load-only")) throw new IllegalArgumentException("--read needs more than --load-only");
        BrokerRole role = BrokerRole.valueOf(options.text("role", "ASYNC_MASTER"));
        MessageStoreConfig config = Settings.store(options, role, options.integer("ha-port", 0));
        String dir = config.getStorePathRootDir();
        if (!new File(dir, "commitlog").isDirectory()) throw new IllegalStateException(dir + " is no store");
        boolean abort = Node.hasAbortFile(config);

        long begun = System.nanoTime(), behind = 0;
        DefaultMessageStore store = Stores.make(config, Settings.broker(role));
        if (!store.load()) throw new IllegalStateException("RocketMQ does not load " + dir);
        long loaded = System.nanoTime();
        if (!options.has("load-only")) {
            Stores.start(store);
            behind = Node.waitForDispatch(store, 60);
        }
        Map<String, Object> event = Output.map("event", "recovered", "ok", true, "min_offset", store.getMinPhyOffset(), "max_offset", store.getMaxPhyOffset());
        Output.putKnown(event, "confirm_offset", Stores.confirmOffset(store));
        event.putAll(Output.map("abort", abort, "load_milliseconds", Output.milliseconds(loaded - begun), "milliseconds", Output.milliseconds(System.nanoTime() - begun)));
        Output.line(event);
        if (options.has("load-only")) return;
        if (behind > 0) throw new IllegalStateException("the queues stay " + behind + " bytes behind the log");
        if (options.has("read")) readAll(store, new File(dir, "consumequeue"));
        Node.close(store);
    }

    private static void readAll(DefaultMessageStore store, File queues) throws Exception {
        for (String topic : names(queues, Comparator.naturalOrder())) {
            for (String queue : names(new File(queues, topic), Comparator.comparing(Integer::valueOf))) Output.line(read(store, topic, Integer.parseInt(queue)));
        }
    }

    private static List<String> names(File directory, Comparator<String> order) {
        String[] names = directory.list((parent, name) -> new File(parent, name).isDirectory());
        return names == null ? List.of() : Arrays.stream(names).sorted(order).toList();
    }

    private static Map<String, Object> read(DefaultMessageStore store, String topic, int queue) throws Exception {
        String where = "queue " + topic + "/" + queue;
        long min = store.getMinOffsetInQueue(topic, queue), max = store.getMaxOffsetInQueue(topic, queue), at = min;
        if (min < 0 || max < min) throw new IllegalStateException(where + " is from " + min + " to " + max);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        while (at < max) {
            GetMessageResult got = store.getMessage("interop", topic, queue, at, 32, null);
            if (got == null || got.getStatus() != GetMessageStatus.FOUND) {
                throw new IllegalStateException(where + ": no message at " + at + ": " + (got == null ? "the store is closed" : got.getStatus()));
            }
            try {
                for (ByteBuffer bytes : got.getMessageBufferList()) {
                    check(where, at++, topic, queue, Stores.decode(bytes.duplicate()));
                    digest.update(bytes.duplicate());
                }
            } finally {
                got.release();
            }
        }
        return Output.map("event", "queue", "topic", topic, "queue_id", queue, "min", min, "max", max, "messages", max - min,
            "sha256", HexFormat.of().formatHex(digest.digest()));
    }

    /** RocketMQ skips an entry without a message: then the next message's offset is not the one asked for. */
    private static void check(String where, long offset, String topic, int queue, MessageExt found) {
        if (found == null) throw new IllegalStateException(where + ": RocketMQ does not decode the message at " + offset);
        if (found.getQueueOffset() == offset && found.getQueueId() == queue && found.getTopic().equals(topic)) return;
        throw new IllegalStateException(String.format("%s: at %d there is the message of %s/%d at %d, log offset %d",
            where, offset, found.getTopic(), found.getQueueId(), found.getQueueOffset(), found.getCommitLogOffset()));
    }
}
