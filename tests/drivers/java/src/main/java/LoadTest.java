import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import java.util.stream.Collectors;

/**
 * A load of the Java driver that goes on until it is told to end: LoadTest HOST PORT KEYSPACE. tests/harness/loader.py talks to it.
 */
public class LoadTest {
    private static final int CHAINS = 4;
    private static final int KEYS_OF_CHAIN = 8;

    /** What was asked in a phase. */
    private static class Phase {
        int acknowledged;
        final Map<String, Integer> refused = new TreeMap<>();
    }

    private final CqlSession session;
    private final PreparedStatement insert;
    private final PreparedStatement select;
    private final Map<String, Phase> phases = new TreeMap<>();
    private final List<String> wrong = new ArrayList<>();
    /** By key: the newest number that was acknowledged, and the newest that was tried. */
    private final int[] newest = new int[CHAINS * KEYS_OF_CHAIN];

    private final int[] tried = new int[CHAINS * KEYS_OF_CHAIN];
    private String current = "before";
    private int acknowledged;
    private volatile boolean stopping;

    private LoadTest(CqlSession session, String keyspace) {
        this.session = session;
        session.execute("CREATE KEYSPACE " + keyspace
                + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}");
        session.execute("CREATE TABLE " + keyspace + ".t (k int PRIMARY KEY, n int)");
        insert = session.prepare("INSERT INTO " + keyspace + ".t (k, n) VALUES (?, ?)");
        select = session.prepare("SELECT n FROM " + keyspace + ".t WHERE k = ?");
    }

    public static void main(String[] arguments) throws Exception {
        var configuration = DriverConfigLoader.programmaticBuilder()
                .withString(DefaultDriverOption.LOAD_BALANCING_POLICY_CLASS, "DcInferringLoadBalancingPolicy")
                .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "QUORUM")
                .withBoolean(DefaultDriverOption.REQUEST_DEFAULT_IDEMPOTENCE, true)
                .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30))
                .build();
        try (var session = CqlSession.builder()
                .addContactPoint(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])))
                .withConfigLoader(configuration)
                .build()) {
            new LoadTest(session, arguments[2]).obey();
        }
    }

    /** Does what the lines say: phase NAME, more COUNT, end. */
    private void obey() throws Exception {
        var running = new ArrayList<Thread>();
        for (int chain = 0; chain < CHAINS; chain++) {
            int number = chain;
            var thread = new Thread(() -> run(number));
            running.add(thread);
            thread.start();
        }
        System.out.println("started");
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 2);
            switch (words[0]) {
                case "phase" -> enter(words[1]);
                case "more" -> awaitMore(Integer.parseInt(words[1]));
                default -> {
                    break;
                }
            }
            if (words[0].equals("end")) {
                break;
            }
            System.out.println(words[0]);
        }
        stopping = true;
        for (Thread thread : running) {
            thread.join();
        }
        enter("read back");
        for (int key = 0; key < newest.length; key++) {
            read(key, DefaultConsistencyLevel.QUORUM);
            read(key, DefaultConsistencyLevel.ALL);
        }
        System.out.println(account());
    }

    private synchronized void enter(String phase) {
        current = phase;
    }

    private synchronized void awaitMore(int count) throws InterruptedException {
        int goal = acknowledged + count;
        while (acknowledged < goal) {
            wait();
        }
    }

    /** Overwrites the keys of a chain one after the other, and reads each. */
    private void run(int chain) {
        for (int number = 1; !stopping; number++) {
            int key = chain * KEYS_OF_CHAIN + number % KEYS_OF_CHAIN;
            int value = number;
            tried[key] = number;
            if (count(() -> session.execute(insert.bind(key, value)))) {
                newest[key] = number;
            }
            read(key, DefaultConsistencyLevel.QUORUM);
        }
    }

    private void read(int key, ConsistencyLevel level) {
        int[] got = {0};
        boolean answered = count(() -> {
            Row row = session.execute(select.bind(key).setConsistencyLevel(level)).one();
            got[0] = row == null ? 0 : row.getInt("n");
            return row;
        });
        if (answered && (got[0] < newest[key] || got[0] > tried[key])) {
            synchronized (this) {
                wrong.add("key " + key + " has " + got[0] + ", between " + newest[key] + " and " + tried[key] + " expected");
            }
        }
    }

    /** Asks, and counts the answer in the phase that it was asked in. */
    private boolean count(Supplier<?> ask) {
        String name;
        synchronized (this) {
            name = current;
        }
        String refusal = null;
        try {
            ask.get();
        } catch (DriverException failure) {
            refusal = failure.toString();
        }
        synchronized (this) {
            Phase told = phases.computeIfAbsent(name, ignored -> new Phase());
            if (refusal != null) {
                told.refused.merge(refusal, 1, Integer::sum);
                return false;
            }
            told.acknowledged++;
            acknowledged++;
            notifyAll();
            return true;
        }
    }

    /** As JSON, on one line. */
    private synchronized String account() {
        String told = phases.entrySet().stream()
                .map(entry -> quoted(entry.getKey()) + ": {\"acknowledged\": " + entry.getValue().acknowledged
                        + ", \"refused\": {" + refusals(entry.getValue()) + "}}")
                .collect(Collectors.joining(", "));
        String errors = wrong.stream().map(LoadTest::quoted).collect(Collectors.joining(", "));
        return "{\"phases\": {" + told + "}, \"wrong\": [" + errors + "]}";
    }

    private static String refusals(Phase phase) {
        return phase.refused.entrySet().stream()
                .map(entry -> quoted(entry.getKey()) + ": " + entry.getValue())
                .collect(Collectors.joining(", "));
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + '"';
    }
}
