// The nodes that the Go driver, gocql 2, knows and takes for up: members HOST PORT. It prints them whenever it reads a line.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strconv"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func main() {
	log.SetFlags(0)
	port, err := strconv.Atoi(os.Args[2])
	must(err)
	cluster := gocql.NewCluster(os.Args[1])
	cluster.Port = port
	session, err := cluster.CreateSession()
	must(err)
	defer session.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Print("known")
		for _, host := range session.GetHosts() {
			if host.IsUp() {
				fmt.Printf(" %s=%s", host.HostID(), host.ConnectAddress())
			}
		}
		fmt.Println()
	}
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}
