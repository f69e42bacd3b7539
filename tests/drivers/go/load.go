// A load of the Go driver that goes on until it is told to end: main HOST PORT KEYSPACE load. tests/harness/loader.py talks to it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

const (
	chains      = 4
	keysOfChain = 8
)

// phase counts what was asked in it.
type phase struct {
	Acknowledged int            `json:"acknowledged"`
	Refused      map[string]int `json:"refused"`
}

type load struct {
	session  *gocql.Session
	table    string
	mutex    sync.Mutex
	current  string
	phases   map[string]*phase
	wrong    []string
	acked    atomic.Int64
	stopping atomic.Bool
	// By key: the newest number that was acknowledged, and the newest that was tried.
	newest, tried [chains * keysOfChain]int
}

func driveLoad(host string, port int, keyspace string) {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.ProtoVersion = 4
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 30 * time.Second
	cluster.Consistency = gocql.Quorum
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	cluster.RetryPolicy = &gocql.SimpleRetryPolicy{NumRetries: 3}
	cluster.ReconnectInterval = time.Second
	session, err := cluster.CreateSession()
	must(err)
	defer session.Close()
	must(session.Query("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}").Exec())
	must(session.Query("CREATE TABLE " + keyspace + ".t (k int PRIMARY KEY, n int)").Exec())
	must(session.AwaitSchemaAgreement(session.Query("").Context()))

	l := &load{session: session, table: keyspace + ".t", current: "before", phases: map[string]*phase{}}
	var running sync.WaitGroup
	for chain := range chains {
		running.Add(1)
		go func() {
			defer running.Done()
			l.run(chain)
		}()
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
			l.mutex.Lock()
			l.current = rest
			l.mutex.Unlock()
		case "more":
			count, err := strconv.Atoi(rest)
			must(err)
			for goal := l.acked.Load() + int64(count); l.acked.Load() < goal; {
				time.Sleep(20 * time.Millisecond)
			}
		case "end":
			l.stopping.Store(true)
			running.Wait()
			l.readBack()
			account, err := json.Marshal(map[string]any{"phases": l.phases, "wrong": l.wrong})
			must(err)
			fmt.Println(string(account))
			return
		}
		fmt.Println(word)
	}
}

// run overwrites the keys of a chain one after the other, and reads each.
func (l *load) run(chain int) {
	for number := 1; !l.stopping.Load(); number++ {
		key := chain*keysOfChain + number%keysOfChain
		l.tried[key] = number
		write := l.session.Query("INSERT INTO "+l.table+" (k, n) VALUES (?, ?)", key, number).Idempotent(true)
		if l.count(write.Exec) {
			l.newest[key] = number
		}
		l.read(key, gocql.Quorum)
	}
}

func (l *load) read(key int, level gocql.Consistency) {
	got := 0
	read := l.session.Query("SELECT n FROM "+l.table+" WHERE k = ?", key).Idempotent(true).Consistency(level)
	ok := l.count(func() error {
		if err := read.Scan(&got); !errors.Is(err, gocql.ErrNotFound) {
			return err
		}
		return nil
	})
	if ok && (got < l.newest[key] || got > l.tried[key]) {
		l.mutex.Lock()
		l.wrong = append(l.wrong, fmt.Sprintf("key %d has %d, between %d and %d expected", key, got, l.newest[key], l.tried[key]))
		l.mutex.Unlock()
	}
}

// count asks, and counts the answer in the phase that it was asked in.
func (l *load) count(ask func() error) bool {
	l.mutex.Lock()
	name := l.current
	l.mutex.Unlock()
	err := ask()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	told := l.phases[name]
	if told == nil {
		told = &phase{Refused: map[string]int{}}
		l.phases[name] = told
	}
	if err != nil {
		told.Refused[fmt.Sprintf("%T: %v", err, err)]++
		return false
	}
	told.Acknowledged++
	l.acked.Add(1)
	return true
}

func (l *load) readBack() {
	l.current = "read back"
	for key := range l.newest {
		for _, level := range []gocql.Consistency{gocql.Quorum, gocql.All} {
			l.read(key, level)
		}
	}
}
