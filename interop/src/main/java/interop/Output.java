package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** Standard output: one JSON object a line, flushed. */
final class Output {
    /** As it was at the start: mqadmin's commands print, and are listened to. */
    private static final PrintStream out = System.out;

    private Output() { }

    /** Makes a map that keeps the order of names and values in turn. */
    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) map.put((String) pairs[i], pairs[i + 1]);
        return map;
    }

    /** Leaves out what this version of RocketMQ does not have: a null. */
    static void putKnown(Map<String, Object> map, String name, Object value) {
        if (value != null) map.put(name, value);
    }

    static synchronized void line(Map<String, Object> map) {
        out.println(JSON.toJSONString(map, JSONWriter.Feature.WriteMapNullValue));
        out.flush();
    }

    /** Of sorted nanoseconds, in microseconds; null if there are none. */
    static Double quantile(long[] sorted, double q) {
        return sorted.length == 0 ? null : sorted[(int) Math.min(sorted.length - 1, (long) (sorted.length * q))] / 1e3;
    }

    static double milliseconds(long nanoseconds) {
        return Math.round(nanoseconds / 1e5) / 10.0;
    }

    /** Adds what this process uses: memory in bytes, threads, CPU seconds since its start. */
    static Map<String, Object> withProcess(Map<String, Object> map) throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            String[] words = line.split("\\s+");
            switch (words[0]) {
                case "VmRSS:" -> map.put("resident_bytes", Long.parseLong(words[1]) * 1024);
                case "RssAnon:" -> map.put("anonymous_bytes", Long.parseLong(words[1]) * 1024);
                case "Threads:" -> map.put("threads", Integer.parseInt(words[1]));
                default -> { }
            }
        }
        map.put("cpu_seconds", cpuSeconds());
        return map;
    }

    static double cpuSeconds() throws Exception {
        String stat = Files.readString(Path.of("/proc/self/stat"));
        // The name in parentheses may hold anything; times are in units of 1/100 s.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
    }
}
