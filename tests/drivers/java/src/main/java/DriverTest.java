import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import java.math.BigDecimal;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The Java driver against a node: DriverTest HOST PORT KEYSPACE. */
public class DriverTest {
    private static final int ROWS = 100;

    public static void main(String[] arguments) {
        for (String version : List.of("V3", "V4", "V5")) {
            for (String compression : List.of("none", "lz4")) {
                drive(arguments[0], Integer.parseInt(arguments[1]), arguments[2], version, compression);
            }
        }
        System.out.println("Java driver: all as it should be");
    }

    private static void drive(String host, int port, String keyspace, String version, String compression) {
        var configuration = DriverConfigLoader.programmaticBuilder()
                .withString(DefaultDriverOption.LOAD_BALANCING_POLICY_CLASS, "DcInferringLoadBalancingPolicy")
                .withString(DefaultDriverOption.PROTOCOL_VERSION, version)
                .withString(DefaultDriverOption.PROTOCOL_COMPRESSION, compression)
                .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30))
                .build();
        try (var session = CqlSession.builder()
                .addContactPoint(new InetSocketAddress(host, port))
                .withConfigLoader(configuration)
                .build()) {
            session.execute("CREATE KEYSPACE " + keyspace
                    + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            try {
                useKeyspace(session, keyspace);
            } finally {
                session.execute("DROP KEYSPACE " + keyspace);
            }
        }
    }

    private static void useKeyspace(CqlSession session, String keyspace) {
        String table = keyspace + ".t";
        session.execute("CREATE TABLE " + table + " (k int, c int, name text, price decimal, tags set<text>,"
                + " history list<int>, labels map<text, bigint>, at timestamp, PRIMARY KEY (k, c))");
        TableMetadata described = session.getMetadata().getKeyspace(keyspace).orElseThrow().getTable("t").orElseThrow();
        check("the primary key", described.getPrimaryKey().stream().map(c -> c.getName().asInternal()).toList(),
                List.of("k", "c"));
        check("columns", described.getColumns().size(), 8);
        check("schema agreement", session.checkSchemaAgreement(), true);

        PreparedStatement insert = session.prepare("INSERT INTO " + table
                + " (k, c, name, price, tags, history, labels, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
        Instant at = Instant.ofEpochMilli(1709208000123L);
        for (int i = 0; i < ROWS; i++) {
            session.execute(insert.bind(i % 10, i, "row " + i, BigDecimal.valueOf(i, 2), Set.of("a", "b"),
                    List.of(i, i + 1), Map.of("x", (long) i), at));
        }
        session.execute("INSERT INTO " + table + " (k, c, name) VALUES (77, 0, 'simple')");

        PreparedStatement select = session.prepare("SELECT * FROM " + table + " WHERE k = ? AND c = ?");
        Row row = session.execute(select.bind(3, 33)).one();
        check("name", row.getString("name"), "row 33");
        check("price", row.getBigDecimal("price"), BigDecimal.valueOf(33, 2));
        check("tags", row.getSet("tags", String.class), Set.of("a", "b"));
        check("history", row.getList("history", Integer.class), List.of(33, 34));
        check("labels", row.getMap("labels", String.class, Long.class), Map.of("x", 33L));
        check("at", row.getInstant("at"), at);
        Row simple = session.execute("SELECT name, price FROM " + table + " WHERE k = 77").one();
        check("the simple row", simple.getString("name"), "simple");
        check("a null", simple.isNull("price"), true);

        int count = 0;
        for (Row ignored : session.execute(SimpleStatement.newInstance("SELECT k FROM " + table).setPageSize(7))) {
            count++;
        }
        check("rows over pages of seven", count, ROWS + 1);

        session.execute(BatchStatement.newInstance(DefaultBatchType.LOGGED,
                SimpleStatement.newInstance("DELETE FROM " + table + " WHERE k = 77"),
                SimpleStatement.newInstance("DELETE FROM " + table + " WHERE k = ?", 3)));
        long left = session.execute("SELECT COUNT(*) FROM " + table).one().getLong(0);
        check("rows after the batch", left, (long) ROWS - 10);

        try {
            session.execute("SELECT * FROM " + keyspace + ".nothing");
            throw new AssertionError("an unknown table was read");
        } catch (InvalidQueryException refused) {
            check("the refusal names it", refused.getMessage().contains("nothing"), true);
        }
    }

    private static void check(String what, Object got, Object expected) {
        if (!got.equals(expected)) {
            throw new AssertionError(what + ": " + got + " instead of " + expected);
        }
    }
}
