package bypass

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodesAsked is how many Nodes are asked for the distribution.
const nodesAsked = 500

// distributionOf names the distribution by whose mark a Node shows that it certifies nodes itself, for
// its join token and without a request; empty: none that is known.
func distributionOf(node *metav1.PartialObjectMetadata) string {
	for key := range node.Annotations {
		for _, name := range []string{"k3s", "rke2"} {
			if strings.HasPrefix(key, name+".io/") {
				return name
			}
		}
	}
	if _, ok := node.Labels["microk8s.io/cluster"]; ok {
		return "microk8s"
	}
	return ""
}

// distribution finds a distribution that certifies nodes itself. Most Nodes have to have its mark: a
// node can write such a mark on its own Node alone.
func (f *Finder) distribution(ctx context.Context) ([]Finding, error) {
	var nodes metav1.PartialObjectMetadataList
	nodes.APIVersion, nodes.Kind = "v1", "NodeList"
	if err := f.c.Reader.List(ctx, &nodes, client.Limit(nodesAsked)); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i := range nodes.Items {
		counts[distributionOf(&nodes.Items[i])]++
	}
	for name, n := range counts {
		if name != "" && 2*n > len(nodes.Items) && !slices.Contains(f.c.Accepted, name) {
			return []Finding{{Way: wayDistribution, Subject: name, Right: "certify nodes",
				Reason: "it signs nodes' certificates itself, for each holder of its join token: attestation of nodes is not supported there"}}, nil
		}
	}
	return nil, nil
}
