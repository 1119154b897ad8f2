package controlplane

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// TestRenewals: a node is late when a tenth of its certificate's lifetime is left, and a node without a Node
// object is not counted.
func TestRenewals(t *testing.T) {
	c := newCompared(t)
	now := time.Now().Truncate(time.Second)
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	certificate := func(from, to time.Duration) v1alpha1.IssuedCertificate {
		return v1alpha1.IssuedCertificate{NotBefore: at(from), NotAfter: *at(to)}
	}
	record := func(name string, state v1alpha1.NodeState, end *metav1.Time, certificates ...v1alpha1.IssuedCertificate) {
		c.replace(&v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AttestedNodeSpec{State: state, LastEnd: end, Certificates: certificates}})
		if name != "gone" {
			c.replace(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	record("current", v1alpha1.NodeBound, at(11*time.Minute), certificate(-94*time.Minute, 11*time.Minute))
	record("late", v1alpha1.NodeBound, at(9*time.Minute), certificate(-time.Hour, time.Minute), certificate(-96*time.Minute, 9*time.Minute))
	record("renewed", v1alpha1.NodeBound, at(time.Hour), certificate(-time.Hour, time.Minute), certificate(-time.Minute, time.Hour))
	record("being-issued", v1alpha1.NodeBound, at(time.Hour), v1alpha1.IssuedCertificate{NotAfter: *at(time.Hour)})
	record("short", v1alpha1.NodeBound, at(time.Minute), certificate(-320*time.Second, 30*time.Second)) // without the time by which it is dated back
	record("ended", v1alpha1.NodeBound, at(-time.Second))
	record("not-issued", v1alpha1.NodeBound, at(time.Hour), certificate(-time.Hour, -time.Second), v1alpha1.IssuedCertificate{NotAfter: *at(time.Hour)})
	record("never", v1alpha1.NodeBound, nil)
	record("gone", v1alpha1.NodeBound, at(-time.Second))
	record("resting", v1alpha1.NodeResting, at(-time.Second))
	want := "# HELP nodeattest_nodes Nodes with a record, by the certificate that ends last: \"current\"; \"late\", with less than a tenth of its lifetime left; \"ended\".\n" +
		"# TYPE nodeattest_nodes gauge\n" + `nodeattest_nodes{certificate="current"} 4` + "\n" + `nodeattest_nodes{certificate="ended"} 3` + "\n" + `nodeattest_nodes{certificate="late"} 1` + "\n"
	if err := testutil.CollectAndCompare(newRenewals(c.Client, func() time.Time { return now }), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
