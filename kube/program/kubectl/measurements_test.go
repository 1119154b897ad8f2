package kubectl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// bootOf is a boot of kernel, an hour before the time of operates.
func bootOf(kernel byte, secureBoot string) *v1alpha1.MeasuredBoot {
	b := &v1alpha1.MeasuredBoot{Time: metav1.NewTime(time.Date(2026, 3, 2, 11, 0, 0, 0, time.UTC)), Machine: "ek:sha256:01", SecureBoot: secureBoot, PCRs: map[string]string{}}
	for index := range 8 {
		b.PCRs[strconv.Itoa(index)] = strings.Repeat(fmt.Sprintf("%02x", 0x10+index), 32)
	}
	b.PCRs["4"] = strings.Repeat(fmt.Sprintf("%02x", kernel), 32)
	return b
}

func nodeWith(name string, boot, before *v1alpha1.MeasuredBoot) *v1alpha1.AttestedNode {
	return &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "ek:sha256:01", State: v1alpha1.NodeBound,
			LastEnd: &metav1.Time{Time: time.Date(2026, 3, 2, 13, 0, 0, 0, time.UTC)}},
		Status: v1alpha1.AttestedNodeStatus{Boot: boot, PreviousBoot: before}}
}

// measuredNodes are a node that was updated, one that was not, and one whose Secure Boot is off; of the others
// none can be exported.
func measuredNodes() []client.Object {
	updated, off, hostile := bootOf(0xbb, "On"), bootOf(0xaa, "Off"), bootOf(0xaa, "\x1b[2J")
	updated.GoodPCRs, off.Wrong = new(int32(1)), []string{"secure-boot: got Secure Boot off, want on"}
	before := bootOf(0xaa, "On")
	before.GoodPCRs = new(int32(0))
	hostile.Wrong, hostile.PCRs["7"], hostile.PCRs["\n9"] = []string{"a\nb\u202e", "2", "3"}, "\x1b[31m", "x"
	other := nodeWith("other-machine", bootOf(0xaa, "On"), nil)
	other.Status.Boot.Machine = "ek:sha256:02"
	gone := nodeWith("resting", bootOf(0xcc, "On"), nil)
	gone.Spec.State = v1alpha1.NodeResting
	ended := nodeWith("ended", bootOf(0xdd, "On"), nil)
	ended.Spec.LastEnd = &metav1.Time{Time: time.Date(2026, 3, 2, 11, 0, 0, 0, time.UTC)}
	unquoted := nodeWith("no-quote", &v1alpha1.MeasuredBoot{Machine: "ek:sha256:01", SecureBoot: "Unknown", Time: before.Time}, nil)
	return []client.Object{nodeWith("node-1", updated, before), nodeWith("node-2", bootOf(0xaa, "On"), nil), nodeWith("node-3", off, nil),
		nodeWith("hostile", hostile, nil), other, gone, ended, nodeWith("unmeasured", nil, nil), unquoted}
}

// TestMeasurements: what each command prints.
func TestMeasurements(t *testing.T) {
	for name, row := range map[string]struct {
		run       func(p *plugin, ctx context.Context, argument string) error
		arguments string
		output    string
	}{
		"node":        {(*plugin).measurements, "node-1", ""},
		"off":         {(*plugin).measurements, "node-3", ""},
		"hostile":     {(*plugin).measurements, "hostile", ""},
		"machine":     {(*plugin).measurements, "other-machine", ""},
		"node.json":   {(*plugin).measurements, "node-1", outputJSON},
		"boots":       {(*plugin).diffMeasurements, "node-1", ""},
		"diff":        {(*plugin).diffMeasurements, "node-2 node-3", ""},
		"diff.json":   {(*plugin).diffMeasurements, "node-1 node-3", outputJSON},
		"export":      {(*plugin).exportMeasurements, "", ""},
		"export.some": {(*plugin).exportMeasurements, "node-3 node-2 node-3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := operates(t, "", measuredNodes()...)
			o.output = row.output
			if err := row.run(o.plugin, t.Context(), row.arguments); err != nil {
				t.Fatal(err)
			}
			isGolden(t, "measurements/"+name, o.out.String()+o.err.String())
		})
	}
}

// TestExportedIsAccepted: the fragment stands where it is pasted, in the shipped configuration.
func TestExportedIsAccepted(t *testing.T) {
	o := operates(t, "", measuredNodes()...)
	o.pcrs = []int{0, 4, 7}
	if err := o.exportMeasurements(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var section struct{ TPM settings.TPM }
	if err := yaml.UnmarshalStrict([]byte("tpm:\n"+o.out.String()+"  requireResident: false\n"), &section); err != nil {
		t.Fatalf("%v\n%s", err, &o.out)
	}
	sets := section.TPM.GoodPCRs
	if err := settings.CheckGoodPCRs(sets); err != nil || len(sets) != 2 || len(sets[0]) != 3 || sets[0][4] != strings.Repeat("bb", 32) || sets[1][4] != strings.Repeat("aa", 32) {
		t.Errorf("%v: %v", err, sets)
	}
	if said := o.err.String(); !strings.Contains(said, "left out, as they sent no quote or have not attested since their machine changed: 3 of the nodes") || !strings.Contains(said, "left out, as Secure Boot is off or unknown or their last boot has another fault: hostile node-3;") {
		t.Errorf("said %q", said)
	}
}

// TestExportRefused: values that would admit most machines, or no machine at all, are not printed.
func TestExportRefused(t *testing.T) {
	separators := bootOf(0xaa, "On")
	for key := range separators.PCRs {
		separators.PCRs[key] = "3d458cfe55cc03ea1f443f1562beec8df51c75e14a9fcf9a7234a13f198e7969"
	}
	zeros := bootOf(0xaa, "On")
	zeros.PCRs["7"] = strings.Repeat("00", 32)
	refused := bootOf(0xaa, "On")
	refused.Wrong = []string{"pcr-policy: got PCR 4 = aa, want bb"}
	unreadable := bootOf(0xaa, "On")
	unreadable.PCRs["7"] = "x', 8: '"
	for name, row := range map[string]struct {
		nodes     []client.Object
		arguments string
		pcrs      []int
		want      string
	}{
		"zeros":                 {[]client.Object{nodeWith("a", zeros, nil)}, "", nil, "node a cannot be allowed: tpm"},
		"zeros that are chosen": {[]client.Object{nodeWith("a", zeros, nil)}, "a", []int{7}, "nothing was measured"},
		"separators":            {[]client.Object{nodeWith("a", separators, nil)}, "", nil, "would admit most machines"},
		"no hexadecimal digits": {[]client.Object{nodeWith("a", unreadable, nil)}, "a", nil, "hexadecimal"},
		"a PCR without a value": {[]client.Object{nodeWith("a", bootOf(1, "On"), nil)}, "a", []int{4, 9}, "no value of PCR 9"},
		"another machine":       {measuredNodes(), "other-machine", nil, "of another machine"},
		"no measurements":       {measuredNodes(), "unmeasured", nil, "set quote: true"},
		"no quote":              {measuredNodes(), "no-quote", nil, "cannot be allowed"},
		"no record":             {measuredNodes(), "node-9", nil, "node-9 has no record"},
		"no nodes":              {nil, "", nil, "no node has measurements"},
		"none that was good":    {[]client.Object{nodeWith("a", refused, nil)}, "", nil, "no node has measurements"},
		"none that is on":       {[]client.Object{nodeWith("a", bootOf(1, "Off"), nil)}, "", nil, "no node has measurements"},
	} {
		t.Run(name, func(t *testing.T) {
			o := operates(t, "", row.nodes...)
			o.pcrs = row.pcrs
			if err := o.exportMeasurements(t.Context(), row.arguments); err == nil || !strings.Contains(err.Error(), row.want) || o.out.Len() != 0 {
				t.Errorf("got %v, want %q\n%s", err, row.want, &o.out)
			}
		})
	}
}

// TestMeasurementsDiffer: the exit status says whether anything differs, and what cannot be compared is an error.
func TestMeasurementsDiffer(t *testing.T) {
	for arguments, want := range map[string]int{"node-1": 1, "node-1 node-2": 1, "node-2 node-2": 0, "node-2 other-machine": 0} {
		o := operates(t, "", measuredNodes()...)
		if err := o.diffMeasurements(t.Context(), arguments); err != nil {
			t.Errorf("%s: %v", arguments, err)
		}
		o.exitCode = true
		if status, _ := errors.AsType[exitStatus](o.diffMeasurements(t.Context(), arguments)); int(status) != want {
			t.Errorf("%s: status %d, want %d", arguments, status, want)
		}
	}
	for arguments, want := range map[string]string{"node-2": "one measured boot", "unmeasured": "no measurements", "node-1 node-9": "no record", "node-1 node-2 node-3": "takes NODE [NODE]"} {
		o := operates(t, "", measuredNodes()...)
		if err := o.diffMeasurements(t.Context(), arguments); err == nil || !strings.Contains(err.Error(), want) || o.out.Len() != 0 {
			t.Errorf("%s: got %v, want %q", arguments, err, want)
		}
	}
}
