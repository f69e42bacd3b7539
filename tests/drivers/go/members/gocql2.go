//go:build !gocql1

package main

import gocql "github.com/apache/cassandra-gocql-driver/v2"

// connect returns a function that lists the hosts.
func connect(host string, port int) (func() []*gocql.HostInfo, error) {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	session, err := cluster.CreateSession()
	if err != nil {
		return nil, err
	}
	return session.GetHosts, nil
}
