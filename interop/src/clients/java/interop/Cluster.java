package interop;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** A cluster by its name servers, and the clients of it that scenarios share. */
@SuppressWarnings("deprecation") // the pull consumer: the only one that reads what it is told to
final class Cluster {
    private static final AtomicInteger instances = new AtomicInteger();

    final String servers;
    private DefaultMQProducer producer;
    private DefaultMQAdminExt admin;
    private DefaultMQPullConsumer reader;

    Cluster(String servers) {
        this.servers = servers;
    }

    /**
     * A client that is one of its own: a connection to each address for itself. It looks for routes three times a second and
     * stores its offsets each second, not each 30 and 5, so that scenarios are short.
     */
    <T extends ClientConfig> T configure(T client) {
        client.setNamesrvAddr(servers);
        client.setInstanceName("interop-" + ProcessHandle.current().pid() + "-" + instances.incrementAndGet());
        client.setPollNameServerInterval(300);
        client.setPersistConsumerOffsetInterval(1000);
        client.setClientCallbackExecutorThreads(2);
        client.setVipChannelEnabled(false);
        return client;
    }

    synchronized DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            DefaultMQProducer p = configure(new DefaultMQProducer("interop-producer"));
            p.setSendMsgTimeout(20_000); // the machine may be busy
            p.setMaxMessageSize(64 << 20); // the broker is to say no
            p.start();
            producer = p;
        }
        return producer;
    }

    synchronized DefaultMQPullConsumer reader() throws Exception {
        if (reader == null) {
            DefaultMQPullConsumer c = configure(new DefaultMQPullConsumer("interop-reader"));
            c.start();
            reader = c;
        }
        return reader;
    }

    synchronized DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            DefaultMQAdminExt a = configure(new DefaultMQAdminExt(60_000)); // the machine may be busy
            a.start();
            admin = a;
        }
        return admin;
    }

    private boolean create(String master, TopicConfig topic) throws Exception {
        try {
            admin().createAndUpdateTopicConfig(master, topic);
            return true;
        } catch (RemotingException e) {
            return false; // the machine is busy; to make it twice is the same as once
        }
    }

    /** Makes a topic on the masters, and waits until it has a route. */
    void createTopic(TopicConfig topic) throws Exception {
        for (var broker : admin().examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            String master = broker.getBrokerAddrs().get(0L);
            if (master != null) Place.until(() -> create(master, topic));
        }
        Place.until(() -> {
            try {
                return !admin().examineTopicRouteInfo(topic.getTopicName()).getQueueDatas().isEmpty();
            } catch (Exception e) {
                return false; // not yet
            }
        });
    }
}
