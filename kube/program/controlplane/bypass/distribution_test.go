package bypass

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestDistribution finds the distributions that certify nodes themselves by the marks of most Nodes:
// one node alone cannot raise the alarm for all.
func TestDistribution(t *testing.T) {
	node := func(name, annotation, label string) client.Object {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": "b", annotation: "x"}, Labels: map[string]string{"c": "d", label: "true"}}}
		o.APIVersion, o.Kind = "v1", "Node"
		return o
	}
	plain := node("plain", "example.com/k3s.io", "example.com/microk8s.io")
	for name, row := range map[string]struct {
		nodes []client.Object
		want  string
	}{
		"no Nodes":                    {nil, ""},
		"kubeadm's":                   {[]client.Object{plain}, ""},
		"k3s":                         {[]client.Object{node("a", "k3s.io/node-args", "x")}, "k3s"},
		"RKE2":                        {[]client.Object{node("a", "rke2.io/hostname", "x"), node("b", "rke2.io/hostname", "x"), plain}, "rke2"},
		"MicroK8s":                    {[]client.Object{node("a", "x", "microk8s.io/cluster")}, "microk8s"},
		"half of the Nodes":           {[]client.Object{node("a", "k3s.io/node-args", "x"), plain}, ""},
		"one that calls itself k3s's": {[]client.Object{node("a", "k3s.io/node-args", "x"), plain, node("b", "x", "x")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, row.nodes...)
			got := c.find(t, Config{})
			if row.want == "" && len(got) != 0 || row.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "Distribution: distribution "+row.want+": it signs")) {
				t.Errorf("found %q, want %q", got, row.want)
			}
			if got := c.find(t, Config{Accepted: []string{"k3s", "rke2", "microk8s"}}); len(got) != 0 {
				t.Errorf("accepted, and found %q", got)
			}
		})
	}
	broken := errors.New("no answer")
	c := newCluster(t)
	f := testkit.Must(NewFinder(Config{Reader: unreadable{c, "Node", "", broken}, Writer: c}))
	if findings, err := f.Find(t.Context()); !errors.Is(err, broken) {
		t.Errorf("%v, %v", findings, err)
	}
	if !slices.Contains(ways(), wayDistribution) {
		t.Error("it is not counted")
	}
}
