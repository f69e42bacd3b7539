import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.ColumnDefinitions;
import com.datastax.driver.core.PagingState;
import com.datastax.driver.core.PreparedStatement;
import com.datastax.driver.core.ProtocolVersion;
import com.datastax.driver.core.ResultSet;
import com.datastax.driver.core.Row;
import com.datastax.driver.core.Session;
import com.datastax.driver.core.SimpleStatement;
import com.datastax.driver.core.SocketOptions;
import com.datastax.driver.core.Statement;
import com.datastax.driver.core.UDTValue;
import com.datastax.driver.core.UserType;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;

/** The ways in which the Java driver 3 reads results: Results HOST PORT VERSION. tests/drivers/test_whole_results.py has the commands. */
public class Results {
    private interface Way {
        List<Row> read(Session session, Statement statement) throws Exception;
    }

    private static final int PATIENCE_MILLISECONDS = 30_000;
    private static final Map<String, Way> WHOLE = Map.of(
            "iteration", Results::byIteration,
            "all", (session, statement) -> session.execute(statement).all(),
            "one until exhausted", Results::byOne,
            "stream", (session, statement) -> StreamSupport.stream(session.execute(statement).spliterator(), false).toList(),
            "fetchMoreResults", Results::byFetching,
            "page by page", Results::byPages,
            "async", (session, statement) -> session.executeAsync(statement).get().all());

    private final Session session;
    private PreparedStatement prepared;
    private int preparations;

    private Results(Session session) {
        this.session = session;
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try (var cluster = Cluster.builder()
                .addContactPoint(arguments[0])
                .withPort(Integer.parseInt(arguments[1]))
                .withProtocolVersion(ProtocolVersion.fromInt(Integer.parseInt(arguments[2])))
                .withSocketOptions(new SocketOptions().setReadTimeoutMillis(PATIENCE_MILLISECONDS))
                .build()) {
            var results = new Results(cluster.connect());
            for (String line; (line = lines.readLine()) != null; ) {
                try {
                    System.out.println(shown(results.answer(line.split(" ", 2))));
                } catch (Exception failure) {
                    System.out.println("failed " + failure);
                }
            }
        }
    }

    private Map<String, ?> answer(String[] command) throws Exception {
        String[] words = command[1].split(" ");
        switch (command[0]) {
            case "read":
                String text = command[1].substring(words[0].length() + 1);
                return byEachWay(() -> new SimpleStatement(text).setFetchSize(Integer.parseInt(words[0])));
            case "prepare":
                // Of a text the driver keeps the first statement while the program does (Cluster.Manager.addPrepared), whatever has changed.
                prepared = session.prepare(command[1] + " ".repeat(preparations++));
                return Map.of();
            case "execute":
                return byEachWay(() -> prepared.bind().setFetchSize(Integer.parseInt(words[0])));
            case "insert":
                var type = (UserType) prepared.getVariables().getType(1);
                UDTValue value = type.newValue();
                for (String field : Arrays.asList(words).subList(1, words.length)) {
                    if (type.contains(field)) {
                        value.setString(field, field);
                    }
                }
                session.execute(prepared.bind(Integer.parseInt(words[0]), value));
                return Map.of();
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private Map<String, ?> byEachWay(Supplier<Statement> statement) throws Exception {
        var whole = new LinkedHashMap<String, Object>();
        for (var way : WHOLE.entrySet()) {
            whole.put(way.getKey(), way.getValue().read(session, statement.get()));
        }
        var first = new LinkedHashMap<String, Object>();
        first.put("one", session.execute(statement.get()).one());
        return Map.of("whole", whole, "first", first);
    }

    private static List<Row> byIteration(Session session, Statement statement) {
        var rows = new ArrayList<Row>();
        for (Row row : session.execute(statement)) {
            rows.add(row);
        }
        return rows;
    }

    private static List<Row> byOne(Session session, Statement statement) {
        var rows = new ArrayList<Row>();
        ResultSet result = session.execute(statement);
        while (!result.isExhausted()) {
            rows.add(result.one());
        }
        return rows;
    }

    private static List<Row> byFetching(Session session, Statement statement) throws Exception {
        var rows = new ArrayList<Row>();
        ResultSet result = session.execute(statement);
        while (true) {
            for (int left = result.getAvailableWithoutFetching(); left > 0; left--) {
                rows.add(result.one());
            }
            if (result.isFullyFetched()) {
                return rows;
            }
            result.fetchMoreResults().get();
        }
    }

    private static List<Row> byPages(Session session, Statement statement) {
        var rows = new ArrayList<Row>();
        while (true) {
            ResultSet result = session.execute(statement);
            for (int left = result.getAvailableWithoutFetching(); left > 0; left--) {
                rows.add(result.one());
            }
            PagingState state = result.getExecutionInfo().getPagingState();
            if (state == null) {
                return rows;
            }
            statement.setPagingState(state);
        }
    }

    /** As JSON. */
    private static String shown(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream()
                    .map(entry -> shown(entry.getKey()) + ": " + shown(entry.getValue()))
                    .collect(Collectors.joining(", ", "{", "}"));
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Results::shown).collect(Collectors.joining(", ", "[", "]"));
        }
        if (value instanceof Row row) {
            var columns = new LinkedHashMap<String, Object>();
            for (ColumnDefinitions.Definition column : row.getColumnDefinitions()) {
                columns.put(column.getName(), row.getObject(column.getName()));
            }
            return shown(columns);
        }
        if (value instanceof UDTValue udt) {
            var fields = new LinkedHashMap<String, Object>();
            udt.getType().getFieldNames().forEach(field -> fields.put(field, udt.getObject(field)));
            return shown(fields);
        }
        return value instanceof String text ? '"' + text + '"' : String.valueOf(value);
    }
}
