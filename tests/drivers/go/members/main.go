// The nodes that the Go driver, gocql 2 (with tag gocql1, 1.7), knows and takes for up: members HOST PORT. It prints them whenever it reads a line.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strconv"
)

func main() {
	log.SetFlags(0)
	port, err := strconv.Atoi(os.Args[2])
	must(err)
	hosts, err := connect(os.Args[1], port)
	must(err)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Print("known")
		for _, host := range hosts() {
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
