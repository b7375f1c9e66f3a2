package interop;

/** Runs the real RocketMQ store with its default HA service, as a master or as a slave. */
public final class Main {
    private Main() { }

    public static void main(String[] args) throws Exception {
        try {
            Options options = new Options(args, Math.min(args.length, 1));
            switch (args.length == 0 ? "" : args[0]) {
                case "master" -> Node.master(options);
                case "slave" -> Node.slave(options);
                default -> throw new IllegalArgumentException("usage: run.sh build|master|slave OPTIONS; see README.md");
            }
        } catch (IllegalArgumentException e) {
            System.err.println(e.getMessage());
            System.exit(2);
        }
        System.exit(0); // some of RocketMQ's threads do not end by themselves
    }
}
