package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A figure is one number of a result, for the table and the curves.
type figure struct {
	name string
	of   func(*result) float64
	// alone says that plain nodes have none.
	alone bool
	unit  string
}

// oldestLeft is the rest, in seconds, of a certificate of 24 hours that was to be renewed at the earliest time, at 65 %
// of the lifetime, when the control plane went away, after another third.
const oldestLeft = (1 - 0.65 - 1.0/3) * 24 * 3600

// each is an amount for each certificate that came in the phase.
func each(of func(*result) float64) func(*result) float64 {
	return func(r *result) float64 { return of(r) / float64(max(r.Certificates, 1)) }
}

var (
	cpu = func(u func(*result) *usage) func(*result) float64 {
		return each(func(r *result) float64 { return 1e3 * u(r).CPU })
	}

	figSeconds  = figure{name: "seconds until all have a new certificate", of: func(r *result) float64 { return r.Seconds }}
	figRequests = figure{name: "requests a second, all clients together", of: func(r *result) float64 { return r.Requests / r.Seconds }}
	figAsked    = figure{name: "requests a certificate", of: each(func(r *result) float64 { return r.Requests })}
	figWrites   = figure{name: "etcd: writes a certificate", of: each(func(r *result) float64 { return r.Writes })}
	figBytes    = figure{name: "etcd: KB in its log a certificate", of: each(func(r *result) float64 { return r.Bytes / 1e3 })}
	figServer   = figure{name: "API server: CPU ms a certificate", of: cpu(func(r *result) *usage { return &r.APIServer })}
	figMemory   = figure{name: "API server: peak MB", of: func(r *result) float64 { return r.APIServer.Peak }}
	figEtcd     = figure{name: "etcd: CPU ms a certificate", of: cpu(func(r *result) *usage { return &r.Etcd })}
	figManager  = figure{name: "kube-controller-manager: CPU ms a certificate", of: cpu(func(r *result) *usage { return &r.Manager })}
	figOurs     = figure{name: "controller, both replicas: CPU ms a certificate",
		of: cpu(func(r *result) *usage { return &r.Controller }), alone: true}
	figOurMB = figure{name: "controller: peak MB of a replica", of: func(r *result) float64 { return r.Controller.Peak }, alone: true}
	figLeft  = figure{name: "that time, of the 24 minutes that the oldest certificate of a day has left",
		of: func(r *result) float64 { return 100 * r.Seconds / oldestLeft }, unit: " %"}
)

// tabled are the figures of each phase that the page has.
var tabled = []struct {
	phase, title string
	figures      []figure
}{
	{phaseJoin, "All join at once",
		[]figure{figSeconds, figRequests, figAsked, figWrites, figBytes, figServer, figMemory, figEtcd, figManager, figOurs, figOurMB}},
	{phaseRenew, "Each renews once, when it is due",
		[]figure{figAsked, figWrites, figBytes, figServer, figMemory, figEtcd, figManager, figOurs, figOurMB}},
	{phaseStorm, "The control plane comes back after a third of a lifetime, and all renewals are due",
		[]figure{figSeconds, figLeft, figRequests, figServer, figMemory, figManager, figOurs, figOurMB}},
}

// measurements are the newest results by phase, way and number of nodes.
type measurements map[string]map[string]map[int]*result

func newest(all []*result) measurements {
	m := measurements{}
	for _, r := range all {
		if m[r.Phase] == nil {
			m[r.Phase] = map[string]map[int]*result{attested: {}, plain: {}}
		}
		if m[r.Phase][r.Way] != nil {
			m[r.Phase][r.Way][r.Nodes] = r
		}
	}
	return m
}

// sizes are the numbers of nodes of which there is any result.
func (m measurements) sizes() []int {
	sizes := map[int]bool{}
	for _, ways := range m {
		for _, of := range ways {
			for n := range of {
				sizes[n] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(sizes))
}

// table is in Markdown: a row for each figure, a column for each size, and in a cell the figure of attested
// nodes with its ratio to that of plain nodes.
func (m measurements) table() string {
	sizes := m.sizes()
	var out strings.Builder
	out.WriteString("| nodes |")
	for _, n := range sizes {
		fmt.Fprintf(&out, " %s |", grouped(n))
	}
	out.WriteString("\n| --- |" + strings.Repeat(" --- |", len(sizes)) + "\n")
	for _, t := range tabled {
		ways := m[t.phase]
		if ways == nil {
			continue
		}
		fmt.Fprintf(&out, "| **%s** |%s\n", t.title, strings.Repeat(" |", len(sizes)))
		for _, f := range t.figures {
			fmt.Fprintf(&out, "| %s |", f.name)
			for _, n := range sizes {
				fmt.Fprintf(&out, " %s |", f.cell(ways[attested][n], ways[plain][n]))
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}

func (f *figure) cell(attested, plain *result) string {
	switch {
	case attested == nil:
		return ""
	case f.alone || plain == nil || f.of(plain) == 0:
		return number(f.of(attested)) + f.unit
	}
	return fmt.Sprintf("%s (%.2f ×)", number(f.of(attested))+f.unit, f.of(attested)/f.of(plain))
}

// number has one digit after the point if it is below 100.
func number(v float64) string {
	if v >= 100 || v == 0 {
		return grouped(int(v + 0.5))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// grouped has commas between thousands.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return grouped(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
