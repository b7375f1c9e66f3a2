package interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers: whatever way a message can be sent, it stands in the topic as it was, and the producer is told where. */
final class Sending {
    private static final int COUNT = 20;

    private Sending() { }

    static void add(Map<String, Clients.Scenario> all) {
        all.put("warm", Sending::warm);
        all.put("send-sync", Sending::sync);
        all.put("send-async", Sending::async);
        all.put("send-oneway", Sending::oneway);
        all.put("send-batch", Sending::batch);
        all.put("send-orderly", Sending::orderly);
        all.put("send-compressed", Sending::compressed);
        all.put("send-properties", Sending::properties);
        all.put("send-refused", Sending::refused);
        all.put("send-unsupported", Sending::unsupported);
    }

    private static Message message(Place place, int number) {
        return new Message(place.topic, "tag", "key-" + number, Place.body(number));
    }

    /** Sends until a message is stored at the slave, too: the cluster is up. */
    private static Map<String, Object> warm(Place place) throws Exception {
        String[] last = new String[1];
        boolean up = Place.until(() -> {
            try {
                last[0] = place.producer().send(message(place, 0)).getSendStatus().name();
            } catch (Exception e) {
                last[0] = e.toString(); // no route yet
            }
            return last[0].equals(SendStatus.SEND_OK.name());
        });
        return Output.map("last", last[0], "up", up);
    }

    /** The first send makes the topic. */
    private static Map<String, Object> sync(Place place) throws Exception {
        Sent sent = new Sent();
        for (int i = 0; i < COUNT; i++) sent.answer(place.producer().send(message(place, i)), 1);
        return sent.result(place, COUNT);
    }

    private static Map<String, Object> async(Place place) throws Exception {
        place.createTopic(4);
        Sent sent = new Sent();
        for (int i = 0; i < COUNT; i++) {
            place.producer().send(message(place, i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.answer(result, 1);
                }

                @Override
                public void onException(Throwable e) {
                    sent.failure(e);
                }
            });
        }
        Place.until(() -> sent.answers() == COUNT);
        return sent.result(place, COUNT);
    }

    private static Map<String, Object> oneway(Place place) throws Exception {
        place.createTopic(4);
        for (int i = 0; i < COUNT; i++) place.producer().sendOneway(message(place, i));
        return new Sent().result(place, COUNT);
    }

    private static Map<String, Object> batch(Place place) throws Exception {
        place.createTopic(4);
        Sent sent = new Sent();
        for (int i = 0; i < COUNT; i += 10) {
            List<Message> batch = new ArrayList<>();
            for (int j = i; j < i + 10; j++) batch.add(message(place, j));
            sent.answer(place.producer().send(batch), 10);
        }
        return sent.result(place, COUNT);
    }

    /** Messages of one key go to one queue, in their order. */
    private static Map<String, Object> orderly(Place place) throws Exception {
        place.createTopic(4);
        Sent sent = new Sent();
        for (int i = 0; i < COUNT; i++) {
            sent.answer(place.producer().send(message(place, i), (queues, number, key) -> queue(queues, (int) key), i % 5), 1);
        }
        Map<String, Object> result = sent.result(place, COUNT);
        Map<String, List<Integer>> queues = new TreeMap<>();
        for (MessageExt message : place.read(COUNT)) queues.computeIfAbsent("" + message.getQueueId(), q -> new ArrayList<>()).add(Place.number(message));
        result.put("queues", queues);
        return result;
    }

    private static MessageQueue queue(List<MessageQueue> queues, int key) {
        return queues.get(key % queues.size());
    }

    /** A body that the client compresses, one that does not get smaller by it, and one that is left as it is. */
    private static Map<String, Object> compressed(Place place) throws Exception {
        place.createTopic(1);
        byte[] text = "a line that comes again and again\n".repeat(10_000).getBytes(), noise = new byte[300_000];
        new Random(1).nextBytes(noise);
        List<byte[]> bodies = List.of(text, noise, new byte[] {0});
        for (byte[] body : bodies) place.producer().send(new Message(place.topic, body));
        List<Object> found = new ArrayList<>();
        for (MessageExt message : place.read(bodies.size())) {
            byte[] body = bodies.get((int) message.getQueueOffset());
            found.add(Output.map("smaller", message.getStoreSize() < body.length, "equal", Arrays.equals(body, message.getBody()), "sys_flag", message.getSysFlag()));
        }
        return Output.map("messages", found);
    }

    private static Map<String, Object> properties(Place place) throws Exception {
        place.createTopic(1);
        Message message = new Message(place.topic, "tag", "one two", 7, "body 0".getBytes(), true);
        message.putUserProperty("plain", "value");
        message.putUserProperty("Unicode ключ", "日本語 😀 = & ; ,");
        message.putUserProperty("long", "x".repeat(20_000));
        message.setBuyerId("buyer");
        place.producer().send(message);
        Message waiting = new Message(place.topic, "", "", 0, "body 1".getBytes(), false);
        place.producer().send(waiting);
        List<Object> found = new ArrayList<>();
        for (MessageExt one : place.read(2)) {
            found.add(Output.map("topic", one.getTopic().equals(place.topic), "tags", one.getTags(), "keys", one.getKeys(), "flag", one.getFlag(),
                "wait", one.isWaitStoreMsgOK(), "buyer", one.getBuyerId(), "plain", one.getUserProperty("plain"), "unicode", one.getUserProperty("Unicode ключ"),
                "long", one.getUserProperty("long") == null ? 0 : one.getUserProperty("long").length(), "names", new TreeSet<>(one.getProperties().keySet()),
                "born_host", one.getBornHost().toString().startsWith("/"), "reconsume_times", one.getReconsumeTimes(),
                "times_ordered", one.getBornTimestamp() <= one.getStoreTimestamp() + 1));
        }
        return Output.map("messages", found);
    }

    /** What every broker says no to; and a topic that may only be read, which RocketMQ leaves to its clients to heed. */
    private static Map<String, Object> refused(Place place) throws Exception {
        place.createTopic(4);
        place.cluster.createTopic(new TopicConfig(place.topic + "-read", 4, 4, 4));
        Message large = new Message(place.topic, noise(5 << 20));
        Message many = message(place, 0);
        many.putUserProperty("many", "x".repeat(40_000));
        MessageQueue beyond = new MessageQueue(place.topic, place.queues().get(0).getBrokerName(), 99);
        return Output.map(
            "body_too_large", Failures.of(() -> place.producer().send(large)),
            "properties_too_long", Failures.of(() -> place.producer().send(many)),
            "queue_beyond", Failures.of(() -> place.producer().send(message(place, 0), beyond)),
            "read_only_topic", Failures.of(() -> place.producer().send(new Message(place.topic + "-read", Place.body(0)),
                new MessageQueue(place.topic + "-read", beyond.getBrokerName(), 0))),
            "stored", place.read(0).size());
    }

    private static byte[] noise(int size) {
        byte[] body = new byte[size];
        new Random(size).nextBytes(body);
        return body;
    }

    /** What RocketMQ takes and haengine does not yet: it has to be refused with a text, and not be stored as something else. */
    private static Map<String, Object> unsupported(Place place) throws Exception {
        place.createTopic(1);
        Message delayed = message(place, 0);
        delayed.setDelayTimeLevel(1);
        Message prepared = message(place, 1);
        prepared.putUserProperty("X", "1");
        org.apache.rocketmq.common.message.MessageAccessor.putProperty(prepared, "TRAN_MSG", "true");
        org.apache.rocketmq.common.message.MessageAccessor.putProperty(prepared, "PGROUP", "interop-producer");
        return Output.map(
            "delayed", Failures.of(() -> place.producer().send(delayed)),
            "prepared", Failures.of(() -> place.producer().send(prepared)),
            "query_by_key", Failures.of(() -> place.cluster.admin().queryMessage(place.topic, "key-0", 8, 0, System.currentTimeMillis() + 10_000)),
            "stored", place.read(0).size());
    }
}
