// The Go driver on several nodes: main HOST PORT KEYSPACE cluster. It says what comes next and goes on when it reads a line.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/gocql/gocql"
)

const keys = 300

var lines = bufio.NewReader(os.Stdin)

// say tells the test where this program is, and waits until it may go on.
func say(place string) {
	fmt.Println(place)
	_, err := lines.ReadString('\n')
	must(err)
}

func driveCluster(host string, port int, keyspace string) {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.ProtoVersion = 4
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 30 * time.Second
	cluster.Consistency = gocql.Quorum
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	cluster.RetryPolicy = &gocql.SimpleRetryPolicy{NumRetries: 3}
	session, err := cluster.CreateSession()
	must(err)
	defer session.Close()

	one, three := table(session, keyspace+"_one", 1), table(session, keyspace+"_three", 3)
	write := func(table string, k int, v string) {
		must(session.Query("INSERT INTO "+table+" (k, c, v) VALUES (?, ?, ?)", k, 0, v).Idempotent(true).Exec())
	}
	read := func(table string, k int) (v string) {
		must(session.Query("SELECT v FROM "+table+" WHERE k = ?", k).Idempotent(true).Scan(&v))
		return
	}

	say("routing")
	for k := range keys {
		write(one, k, fmt.Sprint("v", k))
		check("a row of one copy", read(one, k), fmt.Sprint("v", k))
	}
	say("routed")

	for k := range keys {
		write(three, k, "before")
	}
	before := map[string]any{}
	applied, err := session.Query("UPDATE "+three+" SET v = ? WHERE k = ? AND c = ? IF v = ?", "taken", 1, 0, "before").MapScanCAS(before)
	must(err)
	check("the condition held", applied, true)
	applied, err = session.Query("UPDATE "+three+" SET v = ? WHERE k = ? AND c = ? IF v = ?", "again", 1, 0, "before").MapScanCAS(before)
	must(err)
	check("the condition does not hold any more", applied, false)
	check("what was there instead", before["v"], "taken")

	say("kill")
	for k := range keys {
		write(three, k, "after")
		check("a row of three copies", read(three, k), "after")
	}
	count, k := 0, 0
	pages := session.Query("SELECT k FROM " + three).PageSize(7).Idempotent(true).Iter()
	for pages.Scan(&k) {
		count++
	}
	must(pages.Close())
	check("rows over pages of seven", count, keys)
}

func table(session *gocql.Session, keyspace string, copies int) string {
	must(session.Query(fmt.Sprintf("CREATE KEYSPACE %s WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': %d}"+
		" AND tablets = {'enabled': false}", keyspace, copies)).Exec())
	must(session.Query("CREATE TABLE " + keyspace + ".t (k int, c int, v text, PRIMARY KEY (k, c))").Exec())
	must(session.AwaitSchemaAgreement(session.Query("").Context()))
	return keyspace + ".t"
}
