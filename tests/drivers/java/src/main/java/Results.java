import com.datastax.dse.driver.api.core.cql.reactive.ReactiveRow;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import com.datastax.oss.driver.api.core.data.UdtValue;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;

/** The ways in which the Java driver reads results: Results HOST PORT VERSION. tests/drivers/test_whole_results.py has the commands. */
public class Results {
    private interface Way {
        List<Row> read(CqlSession session, Statement<?> statement) throws Exception;
    }

    private static final Map<String, Way> WHOLE = Map.of(
            "iteration", Results::byIteration,
            "all", (session, statement) -> session.execute(statement).all(),
            "one until null", Results::byOne,
            "stream", (session, statement) -> StreamSupport.stream(session.execute(statement).spliterator(), false).toList(),
            "page by page", Results::byPages,
            "async", (session, statement) -> session.executeAsync(statement).thenCompose(Results::following).toCompletableFuture().get(),
            "reactive", Results::byReactive);

    private final CqlSession session;
    private PreparedStatement prepared;

    private Results(CqlSession session) {
        this.session = session;
    }

    public static void main(String[] arguments) throws Exception {
        var configuration = DriverConfigLoader.programmaticBuilder()
                .withString(DefaultDriverOption.LOAD_BALANCING_POLICY_CLASS, "DcInferringLoadBalancingPolicy")
                .withString(DefaultDriverOption.PROTOCOL_VERSION, "V" + arguments[2])
                .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30))
                .build();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try (var session = CqlSession.builder()
                .addContactPoint(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])))
                .withConfigLoader(configuration)
                .build()) {
            var results = new Results(session);
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
                String statement = command[1].substring(words[0].length() + 1);
                return byEachWay(SimpleStatement.newInstance(statement).setPageSize(Integer.parseInt(words[0])));
            case "prepare":
                // Of a text the driver keeps the first statement until it sees a type of it change; it must have seen the type before.
                session.refreshSchema();
                prepared = session.prepare(command[1]);
                return Map.of();
            case "execute":
                return byEachWay(prepared.bind().setPageSize(Integer.parseInt(words[0])));
            case "insert":
                var type = (UserDefinedType) prepared.getVariableDefinitions().get(1).getType();
                UdtValue value = type.newValue();
                for (String field : Arrays.asList(words).subList(1, words.length)) {
                    if (type.contains(field)) {
                        value = value.setString(field, field);
                    }
                }
                session.execute(prepared.bind(Integer.parseInt(words[0]), value));
                return Map.of();
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private Map<String, ?> byEachWay(Statement<?> statement) throws Exception {
        var whole = new LinkedHashMap<String, Object>();
        for (var way : WHOLE.entrySet()) {
            whole.put(way.getKey(), way.getValue().read(session, statement));
        }
        var page = new ArrayList<Row>();
        session.executeAsync(statement).toCompletableFuture().get().currentPage().forEach(page::add);
        var first = new LinkedHashMap<String, Object>();
        first.put("one", session.execute(statement).one());
        first.put("async one", session.executeAsync(statement).toCompletableFuture().get().one());
        return Map.of("whole", whole, "page", Map.of("current page", page), "first", first);
    }

    private static List<Row> byIteration(CqlSession session, Statement<?> statement) {
        var rows = new ArrayList<Row>();
        for (Row row : session.execute(statement)) {
            rows.add(row);
        }
        return rows;
    }

    private static List<Row> byOne(CqlSession session, Statement<?> statement) {
        var rows = new ArrayList<Row>();
        ResultSet result = session.execute(statement);
        for (Row row; (row = result.one()) != null; ) {
            rows.add(row);
        }
        return rows;
    }

    private static List<Row> byPages(CqlSession session, Statement<?> statement) {
        var rows = new ArrayList<Row>();
        for (ByteBuffer state = null; ; ) {
            ResultSet result = session.execute(statement.setPagingState(state));
            for (int left = result.getAvailableWithoutFetching(); left > 0; left--) {
                rows.add(result.one());
            }
            state = result.getExecutionInfo().getPagingState();
            if (state == null) {
                return rows;
            }
        }
    }

    private static CompletionStage<List<Row>> following(AsyncResultSet page) {
        var rows = new ArrayList<Row>();
        page.currentPage().forEach(rows::add);
        if (!page.hasMorePages()) {
            return CompletableFuture.completedFuture(rows);
        }
        return page.fetchNextPage().thenCompose(Results::following).thenApply(more -> {
            rows.addAll(more);
            return rows;
        });
    }

    private static List<Row> byReactive(CqlSession session, Statement<?> statement) throws Exception {
        var rows = new ArrayList<Row>();
        var done = new CompletableFuture<List<Row>>();
        session.executeReactive(statement).subscribe(new Subscriber<ReactiveRow>() {
            @Override
            public void onSubscribe(Subscription subscription) {
                subscription.request(Long.MAX_VALUE);
            }

            @Override
            public void onNext(ReactiveRow row) {
                rows.add(row);
            }

            @Override
            public void onError(Throwable failure) {
                done.completeExceptionally(failure);
            }

            @Override
            public void onComplete() {
                done.complete(rows);
            }
        });
        return done.get();
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
            row.getColumnDefinitions().forEach(column -> columns.put(column.getName().asInternal(), row.getObject(column.getName())));
            return shown(columns);
        }
        if (value instanceof UdtValue udt) {
            var fields = new LinkedHashMap<String, Object>();
            udt.getType().getFieldNames().forEach(field -> fields.put(field.asInternal(), udt.getObject(field)));
            return shown(fields);
        }
        return value instanceof String text ? '"' + text + '"' : String.valueOf(value);
    }
}
