package interop;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.HAConnection;
import org.apache.rocketmq.store.ha.HAConnectionState;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A running store. */
final class Node {
    private Node() { }

    /** Serves until {@code quit} or the end of standard input; each line of it is a command, answered by one line. */
    static void master(Options options) throws Exception {
        BrokerRole role = BrokerRole.valueOf(options.text("role", "SYNC_MASTER"));
        DefaultMessageStore store = open(options, role, (int) options.number("ha-port", 10912));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null && !line.equals("quit"); ) {
            String[] words = line.split(" ", 2);
            switch (words[0]) {
                case "phase" -> Output.line(new Phase(store, words[1]).run());
                case "wait" -> Output.line(waitForSlave(store, Long.parseLong(words[1])));
                case "status" -> Output.line(status(store));
                default -> Output.line(Output.map("event", "unknown", "command", line));
            }
        }
        close(store);
    }

    /** Copies until {@code --until} is reached, or standard input ends. */
    static void slave(Options options) throws Exception {
        DefaultMessageStore store = open(options, BrokerRole.SLAVE, (int) options.number("ha-port", 0));
        long start = store.getMaxPhyOffset(), until = options.number("until", Long.MAX_VALUE);
        var client = store.getHaService().getHAClient();
        // The client's thread first ran without an address, and now sleeps for 5 s.
        store.getHaService().updateHaMasterAddress(options.text("master"));
        client.wakeup();

        boolean[] ended = {options.has("until")};
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (Exception e) {
                // Closed: the same as ended.
            }
            synchronized (ended) { ended[0] = true; }
        });
        input.setDaemon(true);
        if (!options.has("until")) input.start();

        long connected = 0, first = 0;
        for (boolean end = false; !end; Thread.sleep(1)) {
            long now = System.nanoTime(), max = store.getMaxPhyOffset();
            if (connected == 0 && client.getCurrentState() == HAConnectionState.TRANSFER) {
                connected = now;
                Output.line(Output.map("event", "connected", "max_offset", max));
            }
            if (first == 0 && max != start) first = now;
            if (max >= until) {
                Output.line(Output.withProcess(Output.map("event", "caught up", "bytes", max - start,
                    "from_connect_ms", Output.milliseconds(now - connected), "from_first_byte_ms", Output.milliseconds(now - first))));
                end = true;
            }
            if (!options.has("until")) {
                synchronized (ended) { end = ended[0]; }
            }
        }
        close(store);
    }

    private static DefaultMessageStore open(Options options, BrokerRole role, int port) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        String dir = options.text("store");
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(dir + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog((int) options.number("segment-bytes", 1 << 30));
        config.setHaListenPort(port);
        config.setBrokerRole(role);
        config.setFlushDiskType(FlushDiskType.valueOf(options.text("flush", "ASYNC_FLUSH")));
        // RocketMQ's default of 1 waits for nobody, SYNC_MASTER or not.
        config.setInSyncReplicas((int) options.number("in-sync-replicas", role == BrokerRole.SYNC_MASTER ? 2 : 1));
        config.setTotalReplicas(2);
        set(config, options.all("conf"));

        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("interop");
        broker.setBrokerClusterName("interop");
        broker.setBrokerIP1("127.0.0.1");
        broker.setBrokerIP2("127.0.0.1");
        broker.setBrokerId(role == BrokerRole.SLAVE ? 1 : 0);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("interop", false),
            (topic, queue, offset, tags, time, filter, properties) -> { }, broker, new ConcurrentHashMap<>());
        if (!store.load()) throw new IllegalStateException("RocketMQ does not load " + dir);
        store.start();
        Output.line(Output.map("event", "serving", "role", role.name(), "flush", config.getFlushDiskType().name(),
            "segment_bytes", config.getMappedFileSizeCommitLog(), "in_sync_replicas", config.getInSyncReplicas(),
            "min_offset", store.getMinPhyOffset(), "max_offset", store.getMaxPhyOffset()));
        return store;
    }

    private static void close(DefaultMessageStore store) throws Exception {
        // A store that is shut down behind its queues keeps its abort file.
        for (long end = System.nanoTime() + 10_000_000_000L; store.dispatchBehindBytes() > 0 && System.nanoTime() < end; ) Thread.sleep(5);
        long min = store.getMinPhyOffset(), max = store.getMaxPhyOffset();
        store.shutdown();
        Output.line(Output.map("event", "closed", "min_offset", min, "max_offset", max));
    }

    /** Sets fields of RocketMQ's configuration by their names: {@code name=value}. */
    private static void set(Object config, List<String> settings) {
        Properties properties = new Properties();
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            if (equals < 0) throw new IllegalArgumentException("--conf " + setting + ": want name=value");
            properties.setProperty(setting.substring(0, equals), setting.substring(equals + 1));
        }
        MixAll.properties2Object(properties, config);
    }

    /** The highest offset that a slave acknowledged; -1 when none did. */
    static long acked(DefaultMessageStore store) {
        long best = -1;
        for (HAConnection connection : store.getHaService().getConnectionList()) best = Math.max(best, connection.getSlaveAckOffset());
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

    private static Map<String, Object> status(DefaultMessageStore store) throws Exception {
        return Output.withProcess(Output.map("event", "status", "min_offset", store.getMinPhyOffset(), "max_offset", store.getMaxPhyOffset(),
            "connections", store.getHaService().getConnectionCount().get(), "acked_offset", acked(store)));
    }
}
