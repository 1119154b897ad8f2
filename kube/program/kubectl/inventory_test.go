package kubectl

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// TestInventoryParts reads an inventory from several ConfigMaps, as far as they can be read.
func TestInventoryParts(t *testing.T) {
	config := strings.Replace(strangeConfig, "inventory.yaml", "inventories", 1)
	part := func(n int, key, text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: fmt.Sprint(inventoryPart, n)}, Data: map[string]string{key: text}}
	}
	for name, row := range map[string]struct {
		parts []client.Object
		node  string
		want  string // the error, or the machine's UID
		warns []string
	}{
		"no parts":            {nil, "a", errInventory.Error(), nil},
		"the first":           {[]client.Object{part(1, inventoryKey, "machines: [{nodeName: a, uid: u1}]")}, "a", "u1", nil},
		"the last, of others": {[]client.Object{part(2, inventoryKey, "machines: []"), part(maxInventoryParts, inventoryKey, "machines: [{nodeName: a, uid: u16}]")}, "a", "u16", nil},
		"one too many":        {[]client.Object{part(1, inventoryKey, "machines: []"), part(maxInventoryParts+1, inventoryKey, "machines: [{nodeName: a}]")}, "a", "the inventory has no node a", nil},
		"in two": {[]client.Object{part(1, inventoryKey, "machines: [{nodeName: a}]"), part(2, inventoryKey, "machines: [{nodeName: a}]")}, "a",
			"node a is in part ConfigMap node-attestation-inventory-1, for node a, and in part ConfigMap node-attestation-inventory-2, for node a: neither entry is used", []string{"warning: node a is in part ConfigMap"}},
		"another key": {[]client.Object{part(1, "inventory-1.yaml", "machines: [{nodeName: a}]"), part(2, inventoryKey, "machines: [{nodeName: b, uid: u2}]")}, "a",
			`no part that can be read has node "a", and ConfigMap node-attestation-inventory-1 cannot be read`, []string{"warning: part ConfigMap node-attestation-inventory-1 of the inventory cannot be read: configuration: got no machines"}},
		"of the other part": {[]client.Object{part(1, inventoryKey, "-"), part(2, inventoryKey, "machines: [{nodeName: b, uid: u2}]")}, "b", "u2", []string{"warning: part ConfigMap node-attestation-inventory-1 of"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := operates(t, "", append(row.parts, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: configMap}, Data: map[string]string{configKey: config}})...)
			claim := membership.Claim{NodeName: row.node, Machine: "strange:1"}
			got := ""
			if err := o.fromInventory(t.Context(), &claim, "strange"); err != nil {
				got = err.Error()
			} else {
				got = claim.MachineUID
			}
			if !strings.Contains(got, row.want) || got == "" || strings.Count(o.err.String(), "\n") != len(row.warns) {
				t.Errorf("got %q and %q, want %q", got, &o.err, row.want)
			}
			for _, warning := range row.warns {
				if !strings.Contains(o.err.String(), warning) {
					t.Errorf("got %q, want %q", &o.err, warning)
				}
			}
		})
	}
	o := operates(t, "", part(1, inventoryKey, "machines: []"), part(3, inventoryKey, "machines: [{nodeName: a}]"),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: configMap}, Data: map[string]string{configKey: config}})
	o.client = interceptor.NewClient(o.client.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
		if key.Name == inventoryPart+"2" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, key.Name, nil)
		}
		return c.Get(ctx, key, into, opts...)
	}})
	if c, err := o.configuration(t.Context()); err != nil || c.listed != nil {
		t.Errorf("with a part that the user may not read: %+v, %v", c, err)
	}
	o = operates(t, "")
	s := testkit.Must(settings.Parse([]byte(strings.Replace(config, "/etc/inventories", t.TempDir(), 1)), o.others...))
	for n := range maxShown + 2 {
		testkit.MustDo(os.WriteFile(filepath.Join(s.Inventory.File, fmt.Sprint(n, ".yaml")), nil, 0o600))
	}
	if _, err := o.offline(s); err != nil || strings.Count(o.err.String(), "warning: part ") != maxShown || !strings.HasSuffix(o.err.String(), "warning: the inventory has 2 more errors\n") {
		t.Errorf("got %v, %q", err, &o.err)
	}
	role := testkit.Must(os.ReadFile(filepath.Join("..", "..", "deploy", "operator.yaml")))
	for n := 1; n <= maxInventoryParts+1; n++ {
		if listed := strings.Contains(string(role), fmt.Sprintf("      - %s%d\n", inventoryPart, n)); listed != (n <= maxInventoryParts) {
			t.Errorf("the right to read %s%d: %t", inventoryPart, n, listed)
		}
	}
}
