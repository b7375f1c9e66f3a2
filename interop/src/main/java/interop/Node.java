package interop;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A running store. */
final class Node {
    private Node() { }

    /** Serves until {@code quit} or the end of standard input; each line of it is a command, answered by one line. */
    static void master(Options options) throws Exception {
        BrokerRole role = BrokerRole.valueOf(options.text("role", "SYNC_MASTER"));
        DefaultMessageStore store = open(options, role, options.integer("ha-port", 10912));
        Input.serve((command, argument) -> switch (command) {
            case "phase" -> new Phase(store, argument).run();
            case "mixed" -> new Mixed(store, argument).run();
            case "wait" -> waitForSlave(store, Long.parseLong(argument));
            case "status" -> status(store);
            default -> null;
        });
        close(store);
    }

    /** Copies until {@code --until} is reached, or standard input ends or says {@code quit}. */
    static void slave(Options options) throws Exception {
        DefaultMessageStore store = open(options, BrokerRole.SLAVE, options.integer("ha-port", 0));
        long start = store.getMaxPhyOffset(), until = options.number("until", Long.MAX_VALUE);
        Stores.follow(store, options.text("master"));

        AtomicBoolean ended = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                Input.serve((command, argument) -> command.equals("status") ? status(store) : null);
            } catch (Exception e) {
                // Closed: the same as ended.
            }
            ended.set(true);
        });
        input.setDaemon(true);
        if (!options.has("until")) input.start();

        long connected = 0, first = 0;
        for (boolean end = false; !end; Thread.sleep(1)) {
            long now = System.nanoTime(), max = store.getMaxPhyOffset();
            if (connected == 0 && Stores.clientState(store).equals("TRANSFER")) {
                connected = now;
                Output.line(Output.map("event", "connected", "max_offset", max));
            }
            if (first == 0 && max != start) first = now;
            if (max >= until) {
                Output.line(Output.withProcess(Output.map("event", "caught up", "bytes", max - start,
                    "from_connect_ms", Output.milliseconds(now - connected), "from_first_byte_ms", Output.milliseconds(now - first))));
            }
            end = max >= until || ended.get();
        }
        close(store);
    }

    private static DefaultMessageStore open(Options options, BrokerRole role, int port) throws Exception {
        MessageStoreConfig config = Settings.store(options, role, port);
        DefaultMessageStore store = Stores.make(config, Settings.broker(role));
        if (!store.load()) throw new IllegalStateException("RocketMQ does not load " + config.getStorePathRootDir());
        Stores.start(store);
        Map<String, Object> event = Output.map("event", "serving", "role", role.name(), "flush", config.getFlushDiskType().name(),
            "segment_bytes", config.getMappedFileSizeCommitLog());
        Output.putKnown(event, "in_sync_replicas", Stores.replicas(config));
        event.putAll(Output.map("min_offset", store.getMinPhyOffset(), "max_offset", store.getMaxPhyOffset()));
        Output.line(event);
        return store;
    }

    static void close(DefaultMessageStore store) throws Exception {
        // A store that is shut down behind its queues keeps its abort file.
        waitForDispatch(store, 10);
        long min = store.getMinPhyOffset(), max = store.getMaxPhyOffset();
        store.shutdown();
        Output.line(Output.map("event", "closed", "min_offset", min, "max_offset", max, "abort", hasAbortFile(store.getMessageStoreConfig())));
    }

    static boolean hasAbortFile(MessageStoreConfig config) {
        return new File(config.getStorePathRootDir(), "abort").exists();
    }

    /** Waits until the queues hold all of the log; returns how many bytes they are behind in the end. */
    static long waitForDispatch(DefaultMessageStore store, long seconds) throws Exception {
        long behind;
        for (long end = System.nanoTime() + seconds * 1_000_000_000L; (behind = store.dispatchBehindBytes()) > 0 && System.nanoTime() < end; ) Thread.sleep(5);
        return behind;
    }

    /** The highest offset that a slave acknowledged; -1 when none did. */
    static long acked(DefaultMessageStore store) {
        long best = -1;
        for (Peer peer : Stores.peers(store)) best = Math.max(best, peer.acked());
        return best;
    }

    private static Map<String, Object> waitForSlave(DefaultMessageStore store, long seconds) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        boolean connected, level;
        do {
            Thread.sleep(2);
            connected = store.getHaService().getConnectionCount().get() > 0 && acked(store) >= 0;
            level = connected && acked(store) >= store.getMaxPhyOffset();
        } while (!level && System.nanoTime() < end);
        return Output.map("event", "wait", "in_sync", level, "acked_offset", acked(store), "max_offset", store.getMaxPhyOffset());
    }

    static Map<String, Object> status(DefaultMessageStore store) throws Exception {
        Map<String, Object> event = Output.map("event", "status", "min_offset", store.getMinPhyOffset(), "max_offset", store.getMaxPhyOffset());
        if (store.getMessageStoreConfig().getBrokerRole() == BrokerRole.SLAVE) {
            event.put("state", Stores.clientState(store));
        } else {
            List<Map<String, Object>> peers = new ArrayList<>();
            for (Peer peer : Stores.peers(store)) peers.add(peer.toMap());
            event.putAll(Output.map("connections", store.getHaService().getConnectionCount().get(), "acked_offset", acked(store), "acked", peers));
            Output.putKnown(event, "in_sync_replicas", Stores.inSyncReplicas(store));
        }
        return Output.withProcess(event);
    }
}
