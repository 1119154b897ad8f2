package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A result is the cost of a phase. All programs' processor time is in seconds, and their peaks of memory in MB.
type result struct {
	Nodes    int     `json:"nodes"`
	Way      string  `json:"way"`
	Phase    string  `json:"phase"`
	Machine  string  `json:"machine"`
	Lifetime float64 `json:"lifetimeSeconds"`
	QPS      int     `json:"qps"`
	// Of is how many nodes the phase waited for, and Certificates how many certificates came meanwhile.
	Of           int     `json:"of"`
	Seconds      float64 `json:"seconds"`
	Certificates int     `json:"certificates"`
	// Ended is how many certificates ended before the next one came.
	Ended      int     `json:"ended"`
	Requests   float64 `json:"requests"` // that the API server answered
	Rejected   float64 `json:"rejected"` // those with status 429
	Writes     float64 `json:"writes"`   // of etcd
	Bytes      float64 `json:"bytes"`    // in etcd's log
	APIServer  usage   `json:"apiServer"`
	Controller usage   `json:"controller"` // of both replicas, and the peak of the larger one
	Manager    usage   `json:"manager"`
	Etcd       usage   `json:"etcd"`
	Clients    float64 `json:"clientsCPUSeconds"` // of this program, which is all nodes

	Crashes int            `json:"crashes"` // of controllers that were killed
	Failed  map[string]int `json:"failed"`  // attempts, by their reasons
}

// result is the cost of a phase between two readings.
func (r *run) result(phase string, took time.Duration, before, after *reading) *result {
	got := &result{Machine: machine(), Nodes: r.nodes, Way: r.way, Phase: phase,
		Lifetime: r.lifetime.Seconds(), QPS: r.qps, Seconds: took.Seconds(),
		Certificates: after.got - before.got, Ended: after.ended - before.ended,
		Requests: after.requests - before.requests, Rejected: after.rejected - before.rejected,
		Writes: after.writes - before.writes, Bytes: after.bytes - before.bytes,
		APIServer: minus(after.server, before.server), Manager: minus(after.manager, before.manager),
		Etcd: minus(after.database, before.database)}
	for i, u := range after.controllers {
		u = minus(u, before.controllers[i])
		got.Controller.CPU += u.CPU
		got.Controller.Peak = max(got.Controller.Peak, u.Peak)
	}
	return got
}

// minus leaves the peak as it is.
func minus(after, before usage) usage { return usage{CPU: after.CPU - before.CPU, Peak: after.Peak} }

// log shows a result in a line.
func (r *result) String() string {
	n := float64(max(r.Certificates, 1))
	var failed []string
	for why, times := range r.Failed {
		failed = append(failed, fmt.Sprintf("%d × %s", times, why))
	}
	slices.Sort(failed)
	ms := func(u usage) float64 { return 1e3 * u.CPU / n }
	text := fmt.Sprintf("%d nodes, %s, %s: %d of them in %.1f s, %d certificates, %d ended first; ",
		r.Nodes, r.Way, r.Phase, r.Of, r.Seconds, r.Certificates, r.Ended)
	text += fmt.Sprintf("a certificate: %.1f requests, %.1f writes, %.1f KB, "+
		"CPU ms of API server %.1f, controller %.1f, manager %.1f, etcd %.1f, nodes %.1f; ",
		r.Requests/n, r.Writes/n, r.Bytes/n/1e3, ms(r.APIServer), ms(r.Controller), ms(r.Manager), ms(r.Etcd), 1e3*r.Clients/n)
	return text + fmt.Sprintf("peak MB of API server %.0f, controller %.0f; %.0f × 429; failed: %s",
		r.APIServer.Peak, r.Controller.Peak, r.Rejected, strings.Join(failed, "; "))
}
