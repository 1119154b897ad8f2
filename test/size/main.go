// Size is a program that measures what many nodes cost: they join and renew their certificates through
// attestation, by the shipped controller, and for comparison as kubelets do by themselves, by Kubernetes' own
// approver. The nodes are all in this program, with their TPMs in software; the control plane is a real
// kube-apiserver with etcd and kube-controller-manager, anew for each size and way:
//
//	go run -C test/size . -nodes 100,1000,2500,10000 -results /tmp/size.jsonl
//
// It needs the programs that scripts/kube-binaries.sh builds, and Linux. Results are written as they come: a
// run that is interrupted leaves the results of the phases that have ended. With -pages, the table and curves of
// docs/benchmarks.md are made from all results of the file, and nothing else is run if -nodes is empty.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	nodes := flag.String("nodes", "", "how many `nodes`: numbers with commas between them")
	ways := flag.String("ways", plain+","+attested, "how they get certificates")
	of := flag.String("phases", strings.Join(phases, ","), "what is measured")
	results := flag.String("results", "size.jsonl", "the `file` that results are appended to")
	pages := flag.String("pages", "", "the `folder` of docs/, in which the table and the curves are written")
	o := options{}
	flag.DurationVar(&o.lifetime, "lifetime", 0,
		"how long certificates last; by default 2m for up to 2000 nodes, and for more in proportion, up to 10m")
	flag.IntVar(&o.qps, "qps", 1000, "kube-controller-manager's --kube-api-qps; its own default is 20")
	flag.StringVar(&o.profiles, "profiles", "", "a `folder` for profiles of the API server's processor time at the beginning of each phase")
	flag.DurationVar(&o.throttle, "throttle", time.Minute, "how long the API server answers 429 in the phase throttle")
	flag.DurationVar(&o.patience, "patience", time.Hour, "how long a phase may take")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o.phases = strings.Split(*of, ",")
	o.done = func(r *result) {
		if err := r.append(*results); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	for _, text := range strings.FieldsFunc(*nodes, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "-nodes: %q is no number of nodes\n", text)
			os.Exit(2)
		}
		for way := range strings.SplitSeq(*ways, ",") {
			if !slices.Contains([]string{attested, plain}, way) {
				fmt.Fprintf(os.Stderr, "-ways: %q, want %s or %s\n", way, attested, plain)
				os.Exit(2)
			}
			one := o
			one.nodes, one.way = n, way
			if one.lifetime == 0 {
				one.lifetime = lifetimeOf(n)
			}
			if !alone(ctx, func(t *outside) { begin(t, one) }) {
				os.Exit(1)
			}
		}
	}
	if *pages != "" {
		if err := writePages(*results, *pages); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// lifetimeOf has as many nodes renew in a second at every size from 2000 to 10000.
func lifetimeOf(nodes int) time.Duration {
	return min(max(time.Duration(nodes)*60*time.Millisecond, 2*time.Minute), 10*time.Minute)
}
