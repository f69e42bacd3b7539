import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.time.Duration;

/** The Java driver on several nodes: ClusterTest HOST PORT KEYSPACE. It says what comes next and goes on when it reads a line. */
public class ClusterTest {
    private static final int KEYS = 300;
    private static final BufferedReader LINES = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] arguments) throws IOException {
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
            drive(session, arguments[2]);
        }
        System.out.println("Java driver: all as it should be");
    }

    private static void drive(CqlSession session, String keyspace) throws IOException {
        String one = table(session, keyspace + "_one", 1);
        String three = table(session, keyspace + "_three", 3);

        PreparedStatement insert = session.prepare("INSERT INTO " + one + " (k, c, v) VALUES (?, ?, ?)");
        PreparedStatement select = session.prepare("SELECT v FROM " + one + " WHERE k = ?");
        say("routing");
        for (int k = 0; k < KEYS; k++) {
            session.execute(insert.bind(k, 0, "v" + k));
            check("a row of one copy", session.execute(select.bind(k)).one().getString("v"), "v" + k);
        }
        say("routed");

        insert = session.prepare("INSERT INTO " + three + " (k, c, v) VALUES (?, ?, ?)");
        select = session.prepare("SELECT v FROM " + three + " WHERE k = ?");
        for (int k = 0; k < KEYS; k++) {
            session.execute(insert.bind(k, 0, "before"));
        }
        PreparedStatement condition =
                session.prepare("UPDATE " + three + " SET v = ? WHERE k = ? AND c = ? IF v = ?");
        ResultSet taken = session.execute(condition.bind("taken", 1, 0, "before"));
        check("the condition held", taken.wasApplied(), true);
        ResultSet refused = session.execute(condition.bind("again", 1, 0, "before"));
        check("the condition does not hold any more", refused.wasApplied(), false);
        check("what was there instead", refused.one().getString("v"), "taken");

        say("kill");
        for (int k = 0; k < KEYS; k++) {
            session.execute(insert.bind(k, 0, "after"));
            check("a row of three copies", session.execute(select.bind(k)).one().getString("v"), "after");
        }
        int count = 0;
        for (Row ignored : session.execute(SimpleStatement.newInstance("SELECT k FROM " + three).setPageSize(7))) {
            count++;
        }
        check("rows over pages of seven", count, KEYS);
    }

    private static String table(CqlSession session, String keyspace, int copies) {
        session.execute("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy',"
                + " 'datacenter1': " + copies + "} AND tablets = {'enabled': false}");
        session.execute("CREATE TABLE " + keyspace + ".t (k int, c int, v text, PRIMARY KEY (k, c))");
        return keyspace + ".t";
    }

    /** Tells the test where this program is, and waits until it may go on. */
    private static void say(String place) throws IOException {
        System.out.println(place);
        LINES.readLine();
    }

    private static void check(String what, Object got, Object expected) {
        if (!got.equals(expected)) {
            throw new AssertionError(what + ": " + got + " instead of " + expected);
        }
    }
}
