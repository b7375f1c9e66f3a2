package interop;

/** Runs the real RocketMQ: its store with its default HA service, its brokers, its client, its readers. */
public final class Main {
    private Main() { }

    public static void main(String[] args) throws Exception {
        try {
            Options options = new Options(args, Math.min(args.length, 1));
            String command = args.length == 0 ? "" : args[0];
            switch (command) {
                case "master" -> Node.master(options);
                case "slave" -> Node.slave(options);
                case "dump" -> Dump.run(options);
                case "recover" -> Recovery.run(options);
                case "client" -> Client.run(options);
                case "broker", "namesrv", "group" -> optional("Servers", command, command, options);
                case "clients" -> optional("Clients", command, "run", options);
                default -> throw new IllegalArgumentException("usage: run.sh build|master|slave|dump|recover|client|broker|namesrv|group|clients OPTIONS; see README.md");
            }
        } catch (IllegalArgumentException e) {
            System.err.println(e.getMessage());
            System.exit(2);
        } catch (IllegalStateException e) {
            Output.line(Output.map("event", "failed", "reason", e.getMessage()));
            System.exit(1);
        } catch (Throwable e) {
            e.printStackTrace();
            Output.line(Output.map("event", "failed", "reason", e.toString()));
            System.exit(1);
        }
        System.exit(0); // some of RocketMQ's threads do not end by themselves
    }

    /** Not every build has the classes of the servers and of the clients' scenarios. */
    private static void optional(String name, String command, String method, Options options) throws Exception {
        Class<?> found;
        try {
            found = Class.forName("interop." + name);
        } catch (ClassNotFoundException e) {
            throw new IllegalArgumentException(command + " needs INTEROP_BROKER=1");
        }
        try {
            found.getDeclaredMethod(method, Options.class).invoke(null, options);
        } catch (java.lang.reflect.InvocationTargetException e) {
            if (e.getCause() instanceof Exception cause) throw cause;
            throw e;
        }
    }
}
