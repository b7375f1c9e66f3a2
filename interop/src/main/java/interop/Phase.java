package interop;

import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.common.message.*; // MessageExtBrokerInner is here in 5.x, and
import org.apache.rocketmq.store.*; // here in 4.x

/**
 * Load on a master for some time.
 *
 * <p>The specification is {@code name=value,…}: {@code size} of a body in bytes, {@code threads} that put and wait for the
 * answer, {@code seconds}, {@code until} the log ends at this offset, {@code count} of messages in all, {@code outstanding}: if
 * above 0 each thread keeps that many puts under way instead of waiting.
 */
final class Phase {
    private static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 40000);
    private static final InetSocketAddress STORE = new InetSocketAddress("127.0.0.1", 10911);

    private final DefaultMessageStore store;
    private final int size, threads, outstanding;
    private final long until, nanoseconds;
    private final AtomicLong left; // null: no matter how many
    private final LongAdder[] statuses = new LongAdder[PutMessageStatus.values().length];

    Phase(DefaultMessageStore store, String specification) {
        Map<String, String> given = Options.pairs(specification, "size", "threads", "seconds", "until", "count", "outstanding");
        this.store = store;
        size = Integer.parseInt(given.getOrDefault("size", "1024"));
        threads = Integer.parseInt(given.getOrDefault("threads", "1"));
        outstanding = Integer.parseInt(given.getOrDefault("outstanding", "0"));
        until = Long.parseLong(given.getOrDefault("until", Long.toString(Long.MAX_VALUE)));
        left = given.containsKey("count") ? new AtomicLong(Long.parseLong(given.get("count"))) : null;
        nanoseconds = (long) (Double.parseDouble(given.getOrDefault("seconds", "600")) * 1e9);
        for (int i = 0; i < statuses.length; i++) statuses[i] = new LongAdder();
    }

    Map<String, Object> run() throws Exception {
        double cpu = Output.cpuSeconds();
        long begun = System.nanoTime();
        Producer[] producers = new Producer[threads];
        for (int i = 0; i < threads; i++) (producers[i] = new Producer(i, begun + nanoseconds)).start();
        for (Producer p : producers) p.join();
        double seconds = (System.nanoTime() - begun) / 1e9;

        long[] all = new long[0];
        for (Producer p : producers) {
            if (p.failure != null) throw p.failure;
            int n = all.length;
            all = Arrays.copyOf(all, n + p.count);
            System.arraycopy(p.latencies, 0, all, n, p.count);
        }
        Arrays.sort(all);
        Map<String, Object> byStatus = new LinkedHashMap<>();
        for (PutMessageStatus s : PutMessageStatus.values()) {
            if (statuses[s.ordinal()].sum() > 0) byStatus.put(s.name(), statuses[s.ordinal()].sum());
        }
        return Output.map("event", "phase", "size_bytes", size, "producers", threads, "outstanding", Math.max(outstanding, 1),
            "messages", all.length, "seconds", seconds, "messages_per_second", all.length / seconds, "bytes_per_second", all.length * (double) size / seconds,
            "p50_us", Output.quantile(all, 0.5), "p99_us", Output.quantile(all, 0.99), "p999_us", Output.quantile(all, 0.999), "max_us", Output.quantile(all, 1),
            "master_cpu_seconds", Output.cpuSeconds() - cpu, "status", byStatus, "max_offset", store.getMaxPhyOffset(), "acked_offset", Node.acked(store));
    }

    /** One thread of load. Its latencies are in nanoseconds; the store's threads add to them when puts are pipelined. */
    private final class Producer extends Thread {
        private final int queue;
        private final long deadline;
        private final byte[] body = new byte[size];
        private long[] latencies = new long[1 << 16];
        private int count;
        private Exception failure;

        Producer(int queue, long deadline) {
            this.queue = queue;
            this.deadline = deadline;
        }

        @Override
        public void run() {
            try {
                if (outstanding > 0) pipeline();
                else while (more()) one();
            } catch (Exception e) {
                failure = e;
            }
        }

        private boolean more() {
            return System.nanoTime() < deadline && store.getMaxPhyOffset() < until && (left == null || left.getAndDecrement() > 0);
        }

        private void one() {
            MessageExtBrokerInner message = message();
            long begun = System.nanoTime();
            PutMessageStatus status = store.putMessage(message).getPutMessageStatus();
            ended(begun, status);
        }

        private void pipeline() throws InterruptedException {
            Semaphore room = new Semaphore(outstanding);
            while (more()) {
                room.acquire();
                MessageExtBrokerInner message = message();
                long begun = System.nanoTime();
                store.asyncPutMessage(message).thenAccept(result -> {
                    synchronized (this) { ended(begun, result.getPutMessageStatus()); }
                    room.release();
                });
            }
            room.acquire(outstanding);
        }

        private void ended(long begun, PutMessageStatus status) {
            if (count == latencies.length) latencies = Arrays.copyOf(latencies, 2 * count);
            latencies[count++] = System.nanoTime() - begun;
            statuses[status.ordinal()].increment();
        }

        /** A put changes its message: each needs one of its own. */
        private MessageExtBrokerInner message() {
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic("bench");
            m.setQueueId(queue % 4);
            m.setBody(body);
            m.setBornHost(BORN);
            m.setStoreHost(STORE);
            m.setBornTimestamp(System.currentTimeMillis());
            MessageAccessor.setProperties(m, new HashMap<>());
            m.setPropertiesString("");
            return m;
        }
    }
}
