package interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** What a producer was told, and what stands in the topic then. */
final class Sent {
    private final Map<String, Integer> statuses = new TreeMap<>();
    private final Map<Integer, Set<Long>> offsets = new TreeMap<>(); // by queue
    private final Set<String> ids = new HashSet<>(); // where the messages are, as the broker says
    private boolean told = true; // every answer had what it has to have

    synchronized void answer(SendResult result, int messages) {
        statuses.merge(result.getSendStatus().name(), messages, Integer::sum);
        for (int i = 0; i < messages; i++) {
            told &= offsets.computeIfAbsent(result.getMessageQueue().getQueueId(), q -> new TreeSet<>()).add(result.getQueueOffset() + i);
        }
        String[] all = result.getOffsetMsgId().split(",");
        told &= all.length == messages && result.getMsgId() != null;
        for (String id : all) told &= ids.add(id) && id.length() == 32;
    }

    synchronized void failure(Throwable e) {
        statuses.merge(Failures.name(e), 1, Integer::sum);
    }

    synchronized int answers() {
        return statuses.values().stream().mapToInt(Integer::intValue).sum();
    }

    /** Reads the topic and compares: the messages numbered [0, count), each once, at the offsets that were told. */
    synchronized Map<String, Object> result(Place place, int count) throws Exception {
        List<MessageExt> found = place.read(count);
        Map<Integer, Set<Long>> stored = new TreeMap<>();
        Set<Integer> numbers = new TreeSet<>();
        Set<String> unique = new HashSet<>();
        boolean identified = true;
        for (MessageExt message : found) {
            stored.computeIfAbsent(message.getQueueId(), q -> new TreeSet<>()).add(message.getQueueOffset());
            numbers.add(Place.number(message));
            unique.add(message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
            identified &= ids.isEmpty() || ids.contains(Ids.offset(message));
        }
        boolean dense = stored.values().stream().allMatch(of -> of.equals(upTo(of.size())));
        return Output.map("status", statuses, "answers_complete", told, "stored", found.size(), "bodies_equal", numbers.equals(numbersUpTo(count)),
            "offsets_dense", dense, "offsets_as_told", offsets.isEmpty() || offsets.equals(stored), "ids_as_told", identified, "distinct_ids", unique.size());
    }

    private static Set<Long> upTo(int size) {
        Set<Long> all = new TreeSet<>();
        for (long i = 0; i < size; i++) all.add(i);
        return all;
    }

    static Set<Integer> numbersUpTo(int count) {
        Set<Integer> all = new TreeSet<>();
        for (int i = 0; i < count; i++) all.add(i);
        return all;
    }

    static List<Integer> numbers(List<MessageExt> messages) {
        List<Integer> all = new ArrayList<>();
        for (MessageExt message : messages) all.add(Place.number(message));
        return all;
    }
}
