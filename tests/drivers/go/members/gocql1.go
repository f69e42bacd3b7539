//go:build gocql1

package main

import (
	"sync"

	"github.com/gocql/gocql"
)

// recorder is a policy that records the hosts which the session adds and removes: gocql 1.7 does not list them.
type recorder struct {
	gocql.HostSelectionPolicy
	mutex sync.Mutex
	added map[string]*gocql.HostInfo
}

func (r *recorder) AddHost(host *gocql.HostInfo) {
	r.HostSelectionPolicy.AddHost(host)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	// As in the session's ring, which a host enters once: an event handled late may name a host at its former address.
	if _, is := r.added[host.HostID()]; !is {
		r.added[host.HostID()] = host
	}
}

func (r *recorder) RemoveHost(host *gocql.HostInfo) {
	r.HostSelectionPolicy.RemoveHost(host)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.added, host.HostID())
}

// connect returns a function that lists the hosts.
func connect(host string, port int) (func() []*gocql.HostInfo, error) {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	hosts := &recorder{HostSelectionPolicy: gocql.RoundRobinHostPolicy(), added: map[string]*gocql.HostInfo{}}
	cluster.PoolConfig.HostSelectionPolicy = hosts
	_, err := cluster.CreateSession()
	return func() (listed []*gocql.HostInfo) {
		hosts.mutex.Lock()
		defer hosts.mutex.Unlock()
		for _, host := range hosts.added {
			listed = append(listed, host)
		}
		return listed
	}, err
}
