import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.DriverTimeoutException;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.connection.ClosedConnectionException;
import com.datastax.oss.driver.api.core.connection.HeartbeatException;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import com.datastax.oss.driver.api.core.servererrors.ReadTimeoutException;
import com.datastax.oss.driver.api.core.servererrors.UnavailableException;
import com.datastax.oss.driver.api.core.servererrors.WriteTimeoutException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * A load of the Java driver that goes on until it is told to end: LoadTest HOST PORT KEYSPACE [ring]. tests/harness/loader.py talks to it.
 *
 * Chains overwrite keys, read them and insert new ones at QUORUM; counters count up by conditional statements. Kinds of errors have the
 * names that the Python driver gives them.
 */
public class LoadTest {
    private static final int CHAINS = 4;
    private static final int KEYS_OF_CHAIN = 8;
    private static final int COUNTERS = 2;
    /** How many conditional statements `more` waits for. */
    private static final int COUNTED_OF_MORE = 5;

    private static final int EXAMPLES_MAX = 3;
    /** Between two requests of a chain: a load that fills the machine would show the machine. */
    private static final long PACE_MS = 10;

    private static final int READ_BACK_TRIES = 100;

    /** What was asked in a phase. */
    private static class Phase {
        int asked;
        int acknowledged;
        final Map<String, Integer> refused = new TreeMap<>();
        final Map<String, List<String>> examples = new TreeMap<>();
        final List<Double> latenciesMs = new ArrayList<>();
    }

    private final CqlSession session;
    private final PreparedStatement insert;
    private final PreparedStatement select;
    private final PreparedStatement count;
    private final PreparedStatement counted;
    private final String keyspace;
    private final Map<String, Phase> phases = new TreeMap<>();
    private final List<String> wrong = new ArrayList<>();
    private final Map<String, Integer> rows = new TreeMap<>();
    /** By key: the newest number that was acknowledged, and the newest that was tried. */
    private final Map<Integer, Integer> newest = new HashMap<>();

    private final Map<Integer, Integer> tried = new HashMap<>();
    private String current = "before";
    private int acknowledged;
    private int applied;
    private volatile boolean stopping;

    private LoadTest(CqlSession session, String keyspace, boolean ring) {
        this.session = session;
        this.keyspace = keyspace;
        session.execute("CREATE KEYSPACE " + keyspace
                + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
                + (ring ? " AND tablets = {'enabled': false}" : ""));
        session.execute("CREATE TABLE " + keyspace + ".t (k int PRIMARY KEY, n int)");
        session.execute("CREATE TABLE " + keyspace + ".c (k int PRIMARY KEY, n int)");
        insert = session.prepare("INSERT INTO " + keyspace + ".t (k, n) VALUES (?, ?)");
        select = session.prepare("SELECT n FROM " + keyspace + ".t WHERE k = ?");
        count = session.prepare("UPDATE " + keyspace + ".c SET n = ? WHERE k = ? IF n = ?");
        counted = session.prepare("SELECT n FROM " + keyspace + ".c WHERE k = ?");
        for (int counter = 0; counter < COUNTERS; counter++) {
            session.execute("INSERT INTO " + keyspace + ".c (k, n) VALUES (" + counter + ", 0)");
        }
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
            new LoadTest(session, arguments[2], arguments.length > 3).obey();
        }
    }

    /** Does what the lines say: phase NAME, more COUNT, end. */
    private void obey() throws Exception {
        var running = new ArrayList<Thread>();
        for (int chain = 0; chain < CHAINS; chain++) {
            int number = chain;
            running.add(new Thread(() -> run(number)));
        }
        for (int counter = 0; counter < COUNTERS; counter++) {
            int number = counter;
            running.add(new Thread(() -> countUp(number)));
        }
        running.forEach(Thread::start);
        System.out.println("started");
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 2);
            if (words[0].equals("end")) {
                break;
            }
            switch (words[0]) {
                case "phase" -> enter(words[1]);
                case "more" -> awaitMore(Integer.parseInt(words[1]));
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println(words[0]);
        }
        stopping = true;
        for (Thread thread : running) {
            thread.join();
        }
        readBack();
        System.out.println(account());
    }

    private synchronized void enter(String phase) {
        current = phase;
    }

    private synchronized void awaitMore(int requests) throws InterruptedException {
        int goal = acknowledged + requests;
        int goalOfApplied = applied + COUNTED_OF_MORE;
        while (acknowledged < goal || applied < goalOfApplied) {
            wait();
        }
    }

    /** Overwrites the keys of a chain one after the other, reads each, and inserts a new one. */
    private void run(int chain) {
        int fresh = CHAINS * KEYS_OF_CHAIN + chain;
        for (int number = 1; !stopping; number++) {
            int key = chain * KEYS_OF_CHAIN + number % KEYS_OF_CHAIN;
            write(key, number);
            read(key);
            write(fresh, 1);
            fresh += CHAINS;
        }
    }

    private void write(int key, int number) {
        synchronized (this) {
            tried.put(key, number);
        }
        if (ask(insert.bind(key, number)) != null) {
            synchronized (this) {
                newest.put(key, number);
            }
        }
    }

    private void read(int key) {
        int least;
        synchronized (this) {
            least = newest.getOrDefault(key, 0);
        }
        List<Row> got = ask(select.bind(key));
        if (got != null) {
            compare("read", key, got.isEmpty() ? 0 : got.get(0).getInt("n"), least);
        }
    }

    private synchronized void compare(String where, int key, int got, int least) {
        int most = tried.getOrDefault(key, 0);
        if (got < least || got > most) {
            wrong.add(where + ": key " + key + " has " + got + ", between " + least + " and " + most + " expected");
        }
    }

    /** Counts in a row by conditional statements. After an error a SERIAL read says whether the statement was applied. */
    private void countUp(int counter) {
        int value = 0;
        while (!stopping) {
            // It may not be asked twice: the second would not be applied because the first was.
            List<Row> answer = ask(count.bind(value + 1, counter, value).setIdempotent(false));
            if (answer != null && answer.get(0).getBoolean("[applied]")) {
                value++;
            } else {
                Integer seen = answer == null ? serial(counter) : (Integer) answer.get(0).getInt("n");
                if (seen == null) {
                    return;
                }
                boolean isUncertain = answer == null && (seen == value || seen == value + 1);
                if (!isUncertain) {
                    say("counter " + counter + " was set to " + value + ", and is " + seen);
                }
                value = seen;
            }
            synchronized (this) {
                applied++;
                notifyAll();
            }
        }
        Integer last = serial(counter);
        if (last != null && last != value) {
            say("counter " + counter + " was set to " + value + ", and has " + last + " at the end");
        }
    }

    /** Reads a counter until it is told; null when it never is. */
    private Integer serial(int counter) {
        for (int tries = 0; tries < READ_BACK_TRIES; tries++) {
            List<Row> got = ask(counted.bind(counter).setConsistencyLevel(DefaultConsistencyLevel.SERIAL));
            if (got != null) {
                return got.get(0).getInt("n");
            }
        }
        say("counter " + counter + " cannot be read");
        return null;
    }

    private synchronized void say(String what) {
        wrong.add(what);
    }

    /** Asks, and counts the answer in the phase that it was asked in; null for a refusal. */
    private List<Row> ask(Statement<?> statement) {
        Phase told;
        synchronized (this) {
            told = phases.computeIfAbsent(current, ignored -> new Phase());
            told.asked++;
        }
        long begin = System.nanoTime();
        try {
            List<Row> answer = session.execute(statement).all();
            synchronized (this) {
                told.acknowledged++;
                told.latenciesMs.add((System.nanoTime() - begin) / 1e6);
                acknowledged++;
                notifyAll();
            }
            rest();
            return answer;
        } catch (DriverException failure) {
            String kind = kindOf(failure);
            synchronized (this) {
                told.refused.merge(kind, 1, Integer::sum);
                List<String> examples = told.examples.computeIfAbsent(kind, ignored -> new ArrayList<>());
                if (examples.size() < EXAMPLES_MAX) {
                    examples.add(failure.toString());
                }
            }
        }
        rest();
        return null;
    }

    private static void rest() {
        try {
            Thread.sleep(PACE_MS);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static String kindOf(Throwable failure) {
        if (failure instanceof AllNodesFailedException all) {
            var kinds = new TreeSet<String>();
            all.getAllErrors().values().forEach(errors -> errors.forEach(error -> kinds.add(kindOf(error))));
            return kinds.isEmpty() ? "NoHostAvailable" : String.join("+", kinds);
        }
        if (failure instanceof UnavailableException) {
            return "Unavailable";
        }
        if (failure instanceof WriteTimeoutException) {
            return "WriteTimeout";
        }
        if (failure instanceof ReadTimeoutException) {
            return "ReadTimeout";
        }
        boolean isSilence = failure instanceof DriverTimeoutException
                || failure instanceof ClosedConnectionException
                || failure instanceof HeartbeatException;
        return isSilence ? "OperationTimedOut" : failure.getClass().getSimpleName();
    }

    /** Reads all rows at QUORUM and at ALL. */
    private void readBack() {
        enter("read back");
        for (ConsistencyLevel level : List.of(DefaultConsistencyLevel.QUORUM, DefaultConsistencyLevel.ALL)) {
            var all = SimpleStatement.newInstance("SELECT k, n FROM " + keyspace + ".t").setConsistencyLevel(level);
            List<Row> found = null;
            for (int tries = 0; tries < READ_BACK_TRIES && found == null; tries++) {
                found = ask(all.setPageSize(2000));
            }
            var got = new HashMap<Integer, Integer>();
            if (found != null) {
                found.forEach(row -> got.put(row.getInt("k"), row.getInt("n")));
            }
            rows.put(level.name(), got.size());
            newest.forEach((key, number) -> compare("scan at " + level.name(), key, got.getOrDefault(key, 0), number));
        }
    }

    /** What tests/harness/witness.py takes for an account, as JSON on one line. */
    private synchronized String account() {
        return object(Map.of(
                "phases", object(mapped(phases, LoadTest::told)),
                "wrong", array(wrong),
                "rows", object(mapped(rows, String::valueOf)),
                "counted", String.valueOf(applied)));
    }

    private static String told(Phase phase) {
        var sorted = phase.latenciesMs.stream().sorted().toList();
        double p99 = sorted.isEmpty() ? 0 : sorted.get(sorted.size() * 99 / 100);
        return object(Map.of(
                "asked", String.valueOf(phase.asked),
                "acknowledged", String.valueOf(phase.acknowledged),
                "p99_ms", String.valueOf(p99),
                "refused", object(mapped(phase.refused, String::valueOf)),
                "examples", object(mapped(phase.examples, LoadTest::array))));
    }

    private static <T> Map<String, String> mapped(Map<String, T> values, Function<T, String> json) {
        var mapped = new TreeMap<String, String>();
        values.forEach((key, value) -> mapped.put(key, json.apply(value)));
        return mapped;
    }

    /** The values are JSON already. */
    private static String object(Map<String, String> values) {
        return values.entrySet().stream()
                .map(entry -> quoted(entry.getKey()) + ": " + entry.getValue())
                .collect(Collectors.joining(", ", "{", "}"));
    }

    private static String array(List<String> values) {
        return values.stream().map(LoadTest::quoted).collect(Collectors.joining(", ", "[", "]"));
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + '"';
    }
}
