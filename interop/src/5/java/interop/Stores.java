package interop;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.HAConnection;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What RocketMQ 5.x does otherwise than 4.x. Null stands for what a version does not have. */
final class Stores {
    /** Whether topics of more than 127 characters are stored. */
    static final boolean LONG_TOPICS = true;
    /** The property in which decode returns all properties as they are stored. */
    static final String PROPERTIES_STRING = "propertiesString";

    private Stores() { }

    static DefaultMessageStore make(MessageStoreConfig config, BrokerConfig broker) throws Exception {
        return new DefaultMessageStore(config, new BrokerStatsManager("interop", false),
            (topic, queue, offset, tags, time, filter, properties) -> { }, broker, new ConcurrentHashMap<>());
    }

    static void start(DefaultMessageStore store) throws Exception {
        store.start();
    }

    static void setReplicas(MessageStoreConfig config, int inSync) {
        config.setInSyncReplicas(inSync);
        config.setTotalReplicas(2);
    }

    static Integer replicas(MessageStoreConfig config) {
        return config.getInSyncReplicas();
    }

    /** Copies from this HA address, at once. */
    static void follow(DefaultMessageStore store, String address) {
        store.getHaService().updateHaMasterAddress(address);
        // The client's thread first ran without an address, and now sleeps for 5 s.
        store.getHaService().getHAClient().wakeup();
    }

    static String clientState(DefaultMessageStore store) {
        return store.getHaService().getHAClient().getCurrentState().name();
    }

    static List<Peer> peers(DefaultMessageStore store) {
        long max = store.getMaxPhyOffset(), gap = store.getMessageStoreConfig().getHaMaxGapNotInSync();
        List<Peer> peers = new ArrayList<>();
        List<HAConnection> connections = store.getHaService().getConnectionList();
        synchronized (connections) {
            for (HAConnection c : connections) peers.add(new Peer(c.getClientAddress().substring(1), c.getSlaveAckOffset(), max - c.getSlaveAckOffset() < gap));
        }
        return peers;
    }

    static Integer inSyncReplicas(DefaultMessageStore store) {
        return store.getHaService().inSyncReplicasNums(store.getMaxPhyOffset());
    }

    static Long confirmOffset(DefaultMessageStore store) {
        return store.getConfirmOffset();
    }

    /** Where a delayed message waits for its time; the broker puts it there, not the store. */
    static void delay(MessageExtBrokerInner message, int level) {
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(message.getQueueId()));
        message.setTopic("SCHEDULE_TOPIC_XXXX");
        message.setQueueId(level - 1);
    }

    /** Decodes a stored message, the body as it is; null if RocketMQ cannot, or the body's checksum is wrong. */
    static MessageExt decode(ByteBuffer stored) {
        return MessageDecoder.decode(stored, true, false, false, true, true);
    }
}
