package interop;

import java.io.File;
import java.util.List;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ's configuration, from the options of a command. */
final class Settings {
    private Settings() { }

    static MessageStoreConfig store(Options options, BrokerRole role, int port) {
        MessageStoreConfig config = new MessageStoreConfig();
        String dir = options.text("store");
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(dir + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog(options.integer("segment-bytes", 1 << 30));
        config.setHaListenPort(port);
        config.setBrokerRole(role);
        config.setFlushDiskType(FlushDiskType.valueOf(options.text("flush", "ASYNC_FLUSH")));
        // RocketMQ's default of 1 waits for nobody, SYNC_MASTER or not.
        Stores.setReplicas(config, options.integer("in-sync-replicas", role == BrokerRole.SYNC_MASTER ? 2 : 1));
        if (options.has("small")) {
            config.setMappedFileSizeConsumeQueue(500 * 20);
            config.setMaxHashSlotNum(500);
            config.setMaxIndexNum(2000);
            set(config, List.of("enableCompaction=false")); // its offset file is large
        }
        if (options.has("queue-file-bytes")) config.setMappedFileSizeConsumeQueue(options.integer("queue-file-bytes", 0));
        set(config, options.all("conf"));
        return config;
    }

    static BrokerConfig broker(BrokerRole role) {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("interop");
        config.setBrokerClusterName("interop");
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setBrokerId(role == BrokerRole.SLAVE ? 1 : 0);
        return config;
    }

    /** Sets fields by their names, {@code name=value}; RocketMQ passes over a name that it does not have. */
    static void set(Object config, List<String> settings) {
        Properties properties = new Properties();
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            if (equals < 0) throw new IllegalArgumentException(setting + ": want name=value");
            properties.setProperty(setting.substring(0, equals), setting.substring(equals + 1));
        }
        MixAll.properties2Object(properties, config);
    }
}
