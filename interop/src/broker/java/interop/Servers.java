package interop;

import java.io.File;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** RocketMQ's servers, each on the loopback interface; the HA port is open to all, since RocketMQ cannot do otherwise. */
final class Servers {
    private Servers() { }

    static void namesrv(Options options) throws Exception {
        tellVersion();
        int port = options.integer("port", 9876);
        NamesrvController server = openNameServer(options);
        Output.line(Output.map("event", "serving", "port", port));
        Input.serve((command, argument) -> command.equals("status") ? Output.withProcess(Output.map("event", "status", "port", port)) : null);
        server.shutdown();
        Output.line(Output.map("event", "closed"));
    }

    static void broker(Options options) throws Exception {
        tellVersion();
        BrokerController controller = openBroker(options);
        DefaultMessageStore store = (DefaultMessageStore) controller.getMessageStore();
        Output.line(serving(controller));
        Input.serve((command, argument) -> command.equals("status") ? Node.status(store) : null);

        long min = store.getMinPhyOffset(), max = store.getMaxPhyOffset();
        controller.shutdown();
        Output.line(Output.map("event", "closed", "min_offset", min, "max_offset", max, "abort", Node.hasAbortFile(controller.getMessageStoreConfig())));
    }

    /** Several servers in one JVM, which take most of their time to start one. A command is that of a process of its own. */
    static void group(Options options) throws Exception {
        tellVersion();
        Map<String, BrokerController> brokers = new HashMap<>();
        Output.line(Output.map("event", "serving"));
        Input.serve((command, argument) -> {
            Options given = new Options(argument.split(" "), 0);
            switch (command) {
                case "namesrv" -> {
                    openNameServer(given);
                    return Output.map("event", "listening", "port", given.integer("port", 0));
                }
                case "broker" -> {
                    BrokerController broker = openBroker(given);
                    brokers.put(given.text("listen"), broker);
                    Map<String, Object> event = serving(broker);
                    event.put("event", "listening");
                    return event;
                }
                case "sync" -> {
                    // A slave does it by itself each minute.
                    brokers.get(given.text("listen")).getSlaveSynchronize().syncAll();
                    return Output.map("event", "synced");
                }
                default -> {
                    return null;
                }
            }
        });
    }

    private static NamesrvController openNameServer(Options options) throws Exception {
        int port = options.integer("port", 9876);
        NamesrvConfig config = new NamesrvConfig();
        // Read when it starts; written by administration only.
        config.setKvConfigPath(new File(System.getProperty("java.io.tmpdir"), "interop-namesrv-" + port + ".json").getPath());
        NamesrvController server = new NamesrvController(config, listen(port));
        if (!server.initialize()) throw new IllegalStateException("the name server does not start");
        server.start();
        return server;
    }

    private static BrokerController openBroker(Options options) throws Exception {
        System.setProperty("rocketmq.home.dir", options.text("store"));
        BrokerRole role = BrokerRole.valueOf(options.text("role", "SYNC_MASTER"));
        int port = options.integer("listen", 10911);
        MessageStoreConfig config = Settings.store(options, role, options.integer("ha-port", 10912));
        if (options.has("master")) config.setHaMasterAddress(options.text("master"));
        BrokerConfig broker = Settings.broker(role);
        broker.setNamesrvAddr(options.text("namesrv"));
        if (options.has("broker-id")) broker.setBrokerId(options.number("broker-id", 0));
        Settings.set(broker, List.of("listenPort=" + port)); // 4.x has it in the server's settings only
        Settings.set(broker, options.all("broker-conf"));

        BrokerController controller = new BrokerController(broker, listen(port), new NettyClientConfig(), config);
        if (!controller.initialize()) throw new IllegalStateException("the broker does not load " + config.getStorePathRootDir());
        for (String topic : options.all("topic")) {
            controller.getTopicConfigManager().updateTopicConfig(new TopicConfig(topic, 4, 4, PermName.PERM_READ | PermName.PERM_WRITE));
        }
        controller.start();
        // 5.x forgets the address in its configuration: the HA client is made later.
        if (options.has("master")) Stores.follow((DefaultMessageStore) controller.getMessageStore(), options.text("master"));
        return controller;
    }

    private static Map<String, Object> serving(BrokerController controller) {
        DefaultMessageStore store = (DefaultMessageStore) controller.getMessageStore();
        MessageStoreConfig config = controller.getMessageStoreConfig();
        Map<String, Object> event = Output.map("event", "serving", "role", config.getBrokerRole().name(), "broker_id", controller.getBrokerConfig().getBrokerId(),
            "listen", controller.getNettyServerConfig().getListenPort(), "ha_port", config.getHaListenPort());
        Output.putKnown(event, "in_sync_replicas", Stores.replicas(config));
        event.putAll(Output.map("min_offset", store.getMinPhyOffset(), "max_offset", store.getMaxPhyOffset()));
        return event;
    }

    /** As RocketMQ's own start-up does: a name server drops the topics of a broker that it takes for an ancient one. */
    private static void tellVersion() {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
    }

    private static NettyServerConfig listen(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        Settings.set(config, List.of("bindAddress=127.0.0.1")); // not in every version
        return config;
    }
}
