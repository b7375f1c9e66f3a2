package interop;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Scenarios of clients. One JVM runs all of them, against as many clusters as it is asked to, some side by side: starting a
 * JVM is what costs.
 */
final class Clients {
    /** What a client does and what it sees. The answer is the same for every broker that does what RocketMQ's does. */
    interface Scenario {
        Map<String, Object> run(Place place) throws Exception;
    }

    private Clients() { }

    static void run(Options options) throws Exception {
        Map<String, Scenario> scenarios = new TreeMap<>();
        Sending.add(scenarios);
        Pushing.add(scenarios);
        Ordered.add(scenarios);
        Pulling.add(scenarios);
        Failover.add(scenarios);
        ExecutorService threads = Executors.newFixedThreadPool(options.integer("threads", 12), task -> {
            Thread thread = new Thread(task, "scenario");
            thread.setDaemon(true);
            return thread;
        });
        Map<String, Cluster> clusters = new HashMap<>();
        Output.line(Output.map("event", "serving", "scenarios", scenarios.keySet()));
        Input.serve((command, argument) -> {
            Map<String, String> given = Options.pairs(argument, "id", "scenario", "namesrv", "master", "name", "arguments");
            Scenario scenario = scenarios.get(given.getOrDefault("scenario", ""));
            if (command.equals("mqadmin")) {
                scenario = place -> {
                    String arguments = given.get("arguments");
                    return Admin.run(place.cluster.servers, arguments.contains(" ID") ? arguments.replace(" ID", " " + Failover.id(place)) : arguments);
                };
            } else if (!command.equals("run")) {
                return null;
            }
            if (scenario == null) return null;
            Cluster cluster = clusters.computeIfAbsent(given.get("namesrv"), Cluster::new);
            Scenario work = scenario;
            threads.execute(() -> Output.line(result(given.get("id"), work, new Place(cluster, given.get("name")))));
            return Output.map("event", "begun", "id", given.get("id"));
        });
    }

    private static Map<String, Object> result(String id, Scenario scenario, Place place) {
        long begun = System.nanoTime();
        Map<String, Object> line = Output.map("event", "result", "id", id);
        try (place) {
            line.put("result", scenario.run(place));
        } catch (Throwable e) {
            e.printStackTrace();
            line.put("result", Output.map("exception", Failures.name(e)));
            line.put("text", e.toString());
        }
        line.put("milliseconds", Output.milliseconds(System.nanoTime() - begun));
        return line;
    }
}
