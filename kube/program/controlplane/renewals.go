package controlplane

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// renewals counts, at each scrape, the nodes by what their last certificate's lifetime has left. Nodes renew
// between 65 and 80 percent of it, so that a node that is late has missed its renewal, or is off.
type renewals struct {
	cache client.Reader // with AttestedNodes and the names of Nodes
	now   func() time.Time
	desc  *prometheus.Desc
}

// The states of a renewal.
const (
	renewalCurrent = "current"
	renewalLate    = "late"
	renewalEnded   = "ended"
)

// scrapeLimit bounds the time that the API server's client takes of a scrape.
const scrapeLimit = 2 * time.Second

func newRenewals(cache client.Reader, now func() time.Time) *renewals {
	return &renewals{cache: cache, now: now, desc: prometheus.NewDesc("nodeattest_nodes",
		`Nodes with a record, by the certificate that ends last: "current"; "late", with less than a tenth of its lifetime left; "ended".`, []string{"certificate"}, nil)}
}

// Describe sends the metric's description.
func (r *renewals) Describe(to chan<- *prometheus.Desc) { to <- r.desc }

// Collect counts the nodes. Nodes whose Node object is gone are not counted: they are off for good.
func (r *renewals) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	var records v1alpha1.AttestedNodeList
	nodes := new(metav1.PartialObjectMetadataList)
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	for _, list := range []client.ObjectList{&records, nodes} {
		if err := r.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return // the metric is missing until the caches have been filled
		}
	}
	exists := make(map[string]bool, len(nodes.Items))
	for i := range nodes.Items {
		exists[nodes.Items[i].Name] = true
	}
	counts := map[string]int{renewalCurrent: 0, renewalLate: 0, renewalEnded: 0}
	for i := range records.Items {
		if record := &records.Items[i]; record.Spec.State == v1alpha1.NodeBound && exists[record.Name] {
			counts[renewalOf(&record.Spec, r.now())]++
		}
	}
	for state, n := range counts {
		to <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, float64(n), state)
	}
}

// renewalOf returns the state of a node's renewal. Signers date certificates back by up to csr.Backdate, which
// is no part of the lifetime.
func renewalOf(s *v1alpha1.AttestedNodeSpec, now time.Time) string {
	var last *v1alpha1.IssuedCertificate
	for i := range s.Certificates {
		if c := &s.Certificates[i]; c.NotBefore != nil && (last == nil || c.NotAfter.After(last.NotAfter.Time)) {
			last = c
		}
	}
	if last == nil && s.LastEnd != nil && s.LastEnd.After(now) { // it is being issued
		return renewalCurrent
	}
	if last == nil || last.NotAfter.Time.Before(now) {
		return renewalEnded
	}
	lasts := last.NotAfter.Sub(last.NotBefore.Time)
	if lasts > csr.Backdate {
		lasts -= csr.Backdate
	}
	if last.NotAfter.Sub(now) < lasts/10 {
		return renewalLate
	}
	return renewalCurrent
}
