// A load of the Go driver that goes on until it is told to end: main HOST PORT KEYSPACE load [ring]. tests/harness/loader.py talks to it.
//
// Chains overwrite keys, read them and insert new ones at QUORUM; counters count up by conditional statements. Kinds of errors have the names that
// the Python driver gives them.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

const (
	chains      = 4
	keysOfChain = 8
	counters    = 2
	// How many conditional statements `more` waits for.
	countedOfMore = 5
	examplesMax   = 3
	pause         = 20 * time.Millisecond
	// Between two requests of a chain: a load that fills the machine would show the machine.
	pace          = 10 * time.Millisecond
	readBackTries = 100
)

// phase counts what was asked in it.
type phase struct {
	Asked        int                 `json:"asked"`
	Acknowledged int                 `json:"acknowledged"`
	Refused      map[string]int      `json:"refused"`
	Examples     map[string][]string `json:"examples"`
	P99          float64             `json:"p99_ms"`
	latencies    []float64
}

type load struct {
	session *gocql.Session
	table   string
	counts  string

	mutex    sync.Mutex
	current  string
	phases   map[string]*phase
	wrong    []string
	rows     map[string]int
	acked    int
	counted  int
	stopping bool
	// By key: the newest number that was acknowledged, and the newest that was tried.
	newest, tried map[int]int
}

func driveLoad(host string, port int, keyspace string, ring bool) {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.ProtoVersion = 4
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 30 * time.Second
	cluster.Consistency = gocql.Quorum
	cluster.SerialConsistency = gocql.Serial
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	cluster.ReconnectInterval = time.Second
	session, err := cluster.CreateSession()
	must(err)
	defer session.Close()
	tablets := ""
	if ring {
		tablets = " AND tablets = {'enabled': false}"
	}
	must(session.Query("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}" + tablets).Exec())
	must(session.Query("CREATE TABLE " + keyspace + ".t (k int PRIMARY KEY, n int)").Exec())
	must(session.Query("CREATE TABLE " + keyspace + ".c (k int PRIMARY KEY, n int)").Exec())
	must(session.AwaitSchemaAgreement(session.Query("").Context()))

	l := &load{
		session: session, table: keyspace + ".t", counts: keyspace + ".c", current: "before",
		phases: map[string]*phase{}, rows: map[string]int{}, wrong: []string{}, newest: map[int]int{}, tried: map[int]int{},
	}
	var running sync.WaitGroup
	start := func(run func(int), number int) {
		running.Add(1)
		go func() {
			defer running.Done()
			run(number)
		}()
	}
	for counter := range counters {
		must(session.Query("INSERT INTO "+l.counts+" (k, n) VALUES (?, 0)", counter).Exec())
		start(l.countUp, counter)
	}
	for chain := range chains {
		start(l.run, chain)
	}
	fmt.Println("started")
	l.obey(&running)
}

// obey does what the lines say: phase NAME, more COUNT, end.
func (l *load) obey(running *sync.WaitGroup) {
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		must(err)
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "phase":
			l.locked(func() { l.current = rest })
		case "more":
			count, err := strconv.Atoi(rest)
			must(err)
			l.awaitMore(count)
		case "end":
			l.locked(func() { l.stopping = true })
			running.Wait()
			l.readBack()
			fmt.Println(l.account())
			return
		}
		fmt.Println(word)
	}
}

func (l *load) locked(do func()) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	do()
}

func (l *load) awaitMore(count int) {
	var acked, counted int
	l.locked(func() { acked, counted = l.acked+count, l.counted+countedOfMore })
	for isThere := false; !isThere; time.Sleep(pause) {
		l.locked(func() { isThere = l.acked >= acked && l.counted >= counted })
	}
}

func (l *load) isStopping() (is bool) {
	l.locked(func() { is = l.stopping })
	return is
}

// run overwrites the keys of a chain one after the other, reads each, and inserts a new one.
func (l *load) run(chain int) {
	fresh := chains*keysOfChain + chain
	for number := 1; !l.isStopping(); number++ {
		key := chain*keysOfChain + number%keysOfChain
		l.write(key, number)
		l.read(key)
		l.write(fresh, 1)
		fresh += chains
	}
}

func (l *load) write(key, number int) {
	l.locked(func() { l.tried[key] = number })
	insert := l.session.Query("INSERT INTO "+l.table+" (k, n) VALUES (?, ?)", key, number).Idempotent(true).RetryPolicy(retries)
	if l.count(insert.Exec) {
		l.locked(func() { l.newest[key] = number })
	}
}

func (l *load) read(key int) {
	got, least := 0, 0
	l.locked(func() { least = l.newest[key] })
	read := l.session.Query("SELECT n FROM "+l.table+" WHERE k = ?", key).Idempotent(true).RetryPolicy(retries)
	if l.count(func() error { return found(read.Scan(&got)) }) {
		l.compare("read", key, got, least)
	}
}

// retries are for what may be asked twice. A conditional statement is asked once.
var (
	retries = &gocql.SimpleRetryPolicy{NumRetries: 3}
	once    = &gocql.SimpleRetryPolicy{NumRetries: 0}
)

func found(err error) error {
	if errors.Is(err, gocql.ErrNotFound) {
		return nil
	}
	return err
}

func (l *load) compare(where string, key, got, least int) {
	l.locked(func() {
		if got < least || got > l.tried[key] {
			l.wrong = append(l.wrong, fmt.Sprintf("%s: key %d has %d, between %d and %d expected", where, key, got, least, l.tried[key]))
		}
	})
}

// countUp counts in a row by conditional statements. After an error a SERIAL read says whether the statement was applied.
func (l *load) countUp(counter int) {
	value := 0
	for !l.isStopping() {
		applied, seen := false, 0
		update := l.session.Query("UPDATE "+l.counts+" SET n = ? WHERE k = ? IF n = ?", value+1, counter, value).RetryPolicy(once)
		if l.count(func() (err error) { applied, err = update.ScanCAS(&seen); return err }) {
			if !applied {
				l.locked(func() {
					l.wrong = append(l.wrong, fmt.Sprintf("counter %d was set to %d, and a statement saw %d", counter, value, seen))
				})
				value = seen
				continue
			}
			value++
		} else if seen, ok := l.serial(counter); !ok {
			return
		} else if seen == value || seen == value+1 {
			value = seen
		} else {
			l.locked(func() {
				l.wrong = append(l.wrong, fmt.Sprintf("counter %d was set to %d, and a SERIAL read sees %d", counter, value, seen))
			})
			value = seen
		}
		l.locked(func() { l.counted++ })
	}
	if seen, ok := l.serial(counter); ok && seen != value {
		l.locked(func() {
			l.wrong = append(l.wrong, fmt.Sprintf("counter %d was set to %d, and has %d at the end", counter, value, seen))
		})
	}
}

// serial reads a counter until it is told; false when it never is.
func (l *load) serial(counter int) (int, bool) {
	for range readBackTries {
		seen := 0
		read := l.session.Query("SELECT n FROM "+l.counts+" WHERE k = ?", counter).Consistency(gocql.Consistency(gocql.Serial)).RetryPolicy(once)
		if l.count(func() error { return read.Scan(&seen) }) {
			return seen, true
		}
		time.Sleep(pause)
	}
	l.locked(func() { l.wrong = append(l.wrong, fmt.Sprintf("counter %d cannot be read", counter)) })
	return 0, false
}

// count asks, and counts the answer in the phase that it was asked in.
func (l *load) count(ask func() error) bool {
	var told *phase
	l.locked(func() {
		told = l.phases[l.current]
		if told == nil {
			told = &phase{Refused: map[string]int{}, Examples: map[string][]string{}}
			l.phases[l.current] = told
		}
		told.Asked++
	})
	begin := time.Now()
	err := ask()
	took := float64(time.Since(begin).Microseconds()) / 1000
	l.locked(func() {
		if err == nil {
			told.Acknowledged++
			told.latencies = append(told.latencies, took)
			l.acked++
			return
		}
		kind := kindOf(err)
		told.Refused[kind]++
		if len(told.Examples[kind]) < examplesMax {
			told.Examples[kind] = append(told.Examples[kind], err.Error())
		}
	})
	time.Sleep(pace)
	return err == nil
}

func kindOf(err error) string {
	var unavailable *gocql.RequestErrUnavailable
	var writeTimeout *gocql.RequestErrWriteTimeout
	var readTimeout *gocql.RequestErrReadTimeout
	switch {
	case errors.As(err, &unavailable):
		return "Unavailable"
	case errors.As(err, &writeTimeout):
		return "WriteTimeout"
	case errors.As(err, &readTimeout):
		return "ReadTimeout"
	case errors.Is(err, gocql.ErrTimeoutNoResponse), errors.Is(err, gocql.ErrConnectionClosed), errors.Is(err, io.EOF):
		return "OperationTimedOut"
	case errors.Is(err, gocql.ErrNoConnections):
		return "NoHostAvailable"
	case strings.Contains(err.Error(), "connection reset by peer"), strings.Contains(err.Error(), "broken pipe"):
		return "OperationTimedOut"
	}
	return fmt.Sprintf("%T", err)
}

// readBack reads all rows at QUORUM and at ALL.
func (l *load) readBack() {
	l.current = "read back"
	for _, level := range []gocql.Consistency{gocql.Quorum, gocql.All} {
		var got map[int]int
		for range readBackTries {
			got = map[int]int{}
			all := l.session.Query("SELECT k, n FROM " + l.table).PageSize(2000).Consistency(level).Iter()
			for k, n := 0, 0; all.Scan(&k, &n); {
				got[k] = n
			}
			if l.count(all.Close) {
				break
			}
			got = nil
		}
		l.rows[level.String()] = len(got)
		for key, number := range l.newest {
			l.compare("scan at "+level.String(), key, got[key], number)
		}
	}
}

// account is what tests/harness/witness.py takes for an account, as JSON on one line.
func (l *load) account() string {
	for _, told := range l.phases {
		sort.Float64s(told.latencies)
		if count := len(told.latencies); count > 0 {
			told.P99 = told.latencies[count*99/100]
		}
	}
	account, err := json.Marshal(map[string]any{"phases": l.phases, "wrong": l.wrong, "rows": l.rows, "counted": l.counted})
	must(err)
	return string(account)
}
