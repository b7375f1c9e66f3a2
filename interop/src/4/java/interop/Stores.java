package interop;

import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What RocketMQ 4.x does otherwise than 5.x. Null stands for what a version does not have. */
final class Stores {
    /** Whether topics of more than 127 characters are stored. */
    static final boolean LONG_TOPICS = false;
    /** The property in which decode returns all properties as they are stored. */
    static final String PROPERTIES_STRING = "propertiesString";

    private static final int MAGIC = 0xdaa320a7;

    private Stores() { }

    static DefaultMessageStore make(MessageStoreConfig config, BrokerConfig broker) throws Exception {
        return new DefaultMessageStore(config, new BrokerStatsManager("interop", false),
            (topic, queue, offset, tags, time, filter, properties) -> { }, broker);
    }

    /** Without the service that puts delayed messages once more when their time has come; in 5.x the broker has it, not the store. */
    static void start(DefaultMessageStore store) throws Exception {
        store.start();
        store.getScheduleMessageService().shutdown();
    }

    /** There is no such setting: a SYNC_MASTER waits for one slave. */
    static void setReplicas(MessageStoreConfig config, int inSync) { }

    static Integer replicas(MessageStoreConfig config) {
        return null;
    }

    /** Copies from this HA address, at once. */
    static void follow(DefaultMessageStore store, String address) {
        store.getHaService().updateMasterAddress(address);
        // The client's thread first ran without an address, and now sleeps for 5 s.
        ((ServiceThread) get(store.getHaService(), "haClient")).wakeup();
    }

    /** 4.x keeps no state: it is taken from the client's socket. */
    static String clientState(DefaultMessageStore store) {
        return get(get(store.getHaService(), "haClient"), "socketChannel") == null ? "READY" : "TRANSFER";
    }

    static List<Peer> peers(DefaultMessageStore store) {
        long max = store.getMaxPhyOffset(), gap = store.getMessageStoreConfig().getHaSlaveFallbehindMax();
        List<Peer> peers = new ArrayList<>();
        List<?> connections = (List<?>) get(store.getHaService(), "connectionList");
        synchronized (connections) {
            for (Object c : connections) {
                long acked = (long) get(c, "slaveAckOffset");
                peers.add(new Peer(((String) get(c, "clientAddr")).substring(1), acked, max - acked < gap));
            }
        }
        return peers;
    }

    static Integer inSyncReplicas(DefaultMessageStore store) {
        return null;
    }

    static Long confirmOffset(DefaultMessageStore store) {
        return null;
    }

    /** The store itself puts a delayed message where it waits for its time. */
    static void delay(MessageExtBrokerInner message, int level) { }

    /** Decodes a stored message, the body as it is; null if RocketMQ cannot, or the body's checksum is wrong. */
    static MessageExt decode(ByteBuffer stored) {
        if (stored.getInt(stored.position() + 4) != MAGIC) return null; // the decoder would not notice
        ByteBuffer raw = stored.duplicate();
        MessageExt message = MessageDecoder.decode(stored, true, false, false);
        if (message == null || message.getBody() != null && message.getBody().length > 0 && UtilAll.crc32(message.getBody()) != message.getBodyCRC()) return null;
        Map<String, String> properties = message.getProperties() == null ? new HashMap<>() : new HashMap<>(message.getProperties());
        properties.put(PROPERTIES_STRING, propertiesOf(raw, message));
        MessageAccessor.setProperties(message, properties);
        return message;
    }

    /** The properties are the end of the message, behind their length and the topic. */
    private static String propertiesOf(ByteBuffer raw, MessageExt message) {
        int hosts = message.getBornHostBytes().remaining() + message.getStoreHostBytes().remaining();
        int body = message.getBody() == null ? 0 : message.getBody().length;
        int from = raw.position() + 75 + hosts + body + message.getTopic().getBytes(StandardCharsets.UTF_8).length;
        byte[] bytes = new byte[raw.getShort(from - 2)];
        raw.get(from, bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static Object get(Object object, String name) {
        try {
            Field field = object.getClass().getDeclaredField(name);
            field.setAccessible(true);
            return field.get(object);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
