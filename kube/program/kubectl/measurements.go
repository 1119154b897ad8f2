package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/refusal"
)

// measuredItem is a node in the output of measurements.
type measuredItem struct {
	Node string `json:"node"`
	// Boot and PreviousBoot are in the record's status.
	Boot         *v1alpha1.MeasuredBoot `json:"boot"`
	PreviousBoot *v1alpha1.MeasuredBoot `json:"previousBoot,omitempty"`
}

// measurements shows the last boot of a node's machine.
func (p *plugin) measurements(ctx context.Context, node string) error {
	object, err := p.booted(ctx, node)
	if err != nil {
		return err
	}
	item, boot := measuredItem{object.Name, object.Status.Boot, object.Status.PreviousBoot}, object.Status.Boot
	if p.output == outputJSON || p.output == outputName {
		l := list[measuredItem]{kind: "Measurements", name: func(m measuredItem) string { return m.Node }}
		return l.print(p, []measuredItem{item})
	}
	fmt.Fprintln(p.out, "node", refusal.Text(object.Name))
	machine := boot.Machine
	if machine != object.Spec.Machine {
		machine += "; the record now has " + refusal.Text(object.Spec.Machine)
	}
	p.row("machine", "%s", machine)
	p.row("judged", "%s", second(boot.Time.Time))
	p.rowOf("Secure Boot", boot.SecureBoot)
	p.rowOf("good PCRs", goodSet(boot))
	for _, text := range boot.Wrong[:min(len(boot.Wrong), maxWrongs)] {
		p.row("wrong", "%s", text)
	}
	for _, index := range indexes(boot) {
		p.row("PCR "+strconv.Itoa(index), "%s", refusal.Text(boot.PCRs[strconv.Itoa(index)]))
	}
	if before := object.Status.PreviousBoot; before != nil {
		p.row("before", "another boot, judged %s: kubectl nodeattest measurements diff %s", second(before.Time.Time), object.Name)
	}
	return nil
}

// maxWrongs is how many reasons are shown.
const maxWrongs = 2

// booted reads the record of a node that has measurements.
func (p *plugin) booted(ctx context.Context, node string) (*v1alpha1.AttestedNode, error) {
	object := new(v1alpha1.AttestedNode)
	switch err := p.client.Get(ctx, client.ObjectKey{Name: node}, object); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("node %s has no record", node)
	case err != nil:
		return nil, err
	}
	if object.Status.Boot == nil {
		return nil, fmt.Errorf("node %s has no measurements: set quote: true in evidence.tpm of its kubelet-authenticator.yaml, and they are there once it has attested again", node)
	}
	return object, nil
}

// goodSet names the set of goodPCRs that a boot had.
func goodSet(boot *v1alpha1.MeasuredBoot) string {
	if boot.GoodPCRs == nil {
		return ""
	}
	return fmt.Sprintf("goodPCRs[%d]", *boot.GoodPCRs)
}

// indexes returns the indexes of the PCRs of boots, ascending. A key that is no index is left out.
func indexes(boots ...*v1alpha1.MeasuredBoot) []int {
	var all []int
	for _, boot := range boots {
		for key := range boot.PCRs {
			if n, err := strconv.Atoi(key); err == nil && strconv.Itoa(n) == key {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// differing is a measurement in the output of measurements diff.
type differing struct {
	Measurement string `json:"measurement"`
	First       string `json:"first"`
	Second      string `json:"second"`
}

// diffMeasurements shows the differences between the boots of two nodes, or the last two boots of one.
func (p *plugin) diffMeasurements(ctx context.Context, nodes string) error {
	names := strings.Fields(nodes)
	if len(names) > 2 {
		return fmt.Errorf("measurements diff takes NODE [NODE]; %w", errUsage)
	}
	object, err := p.booted(ctx, names[0])
	if err != nil {
		return err
	}
	first, second, titles := object.Status.PreviousBoot, object.Status.Boot, []string{"BEFORE", "NOW"}
	if len(names) == 2 {
		other, err := p.booted(ctx, names[1])
		if err != nil {
			return err
		}
		first, second, titles = second, other.Status.Boot, names
	} else if first == nil {
		return fmt.Errorf("node %s has one measured boot: give another node to compare it with", names[0])
	}
	items := differences(first, second)
	l := list[differing]{"Differences", func(d differing) string { return d.Measurement }, []column[differing]{
		{"MEASUREMENT", func(d differing) string { return d.Measurement }, false},
		{titles[0], func(d differing) string { return refusal.Text(d.First) }, false},
		{titles[1], func(d differing) string { return refusal.Text(d.Second) }, false},
	}}
	if err := l.print(p, items); err != nil {
		return err
	}
	if len(items) != 0 && p.exitCode {
		return exitStatus(1)
	}
	return nil
}

// differences are never nil.
func differences(a, b *v1alpha1.MeasuredBoot) []differing {
	all := []differing{{"Secure Boot", a.SecureBoot, b.SecureBoot}, {"good PCRs", goodSet(a), goodSet(b)}}
	for _, index := range indexes(a, b) {
		key := strconv.Itoa(index)
		all = append(all, differing{"PCR " + key, a.PCRs[key], b.PCRs[key]})
	}
	return slices.DeleteFunc(all, func(d differing) bool { return d.First == d.Second })
}

// exported is a set of values and the nodes that have it.
type exported struct {
	values map[int]string
	nodes  []string // as comments have them
}

// exportMeasurements prints the values of nodes as goodPCRs, each different set once.
func (p *plugin) exportMeasurements(ctx context.Context, nodes string) error {
	objects, err := p.exportable(ctx, strings.Fields(nodes))
	if err != nil {
		return err
	}
	sets := map[string]*exported{}
	for _, o := range objects {
		values, err := p.values(o)
		if err != nil {
			return err
		}
		text := flow(values)
		if sets[text] == nil {
			sets[text] = &exported{values: values}
		}
		comment := o.Name + " (" + second(o.Status.Boot.Time.Time)
		if o.Status.Boot.SecureBoot != "" {
			comment += ", Secure Boot " + refusal.Text(o.Status.Boot.SecureBoot)
		}
		sets[text].nodes = append(sets[text].nodes, comment+")")
	}
	fmt.Fprintf(p.out, "# For the section tpm of the configuration, in the place of its goodPCRs (sets: %d, nodes: %d). A machine that quotes none of the sets is refused.\n  goodPCRs:\n", len(sets), len(objects))
	sorted := slices.SortedFunc(maps.Values(sets), func(a, b *exported) int { return cmp.Compare(a.nodes[0], b.nodes[0]) })
	for _, set := range sorted {
		const most = 16
		for _, node := range set.nodes[:min(len(set.nodes), most)] {
			fmt.Fprintln(p.out, "    #", refusal.Text(node))
		}
		if more := len(set.nodes) - most; more > 0 {
			fmt.Fprintf(p.out, "    # and %d more nodes\n", more)
		}
		fmt.Fprintln(p.out, "    -", flow(set.values))
	}
	return nil
}

// flow writes a set in the flow style of YAML. The values are hexadecimal digits.
func flow(values map[int]string) string {
	var all []string
	for _, index := range slices.Sorted(maps.Keys(values)) {
		all = append(all, fmt.Sprintf("%d: '%s'", index, values[index]))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// values returns the values of a node, of the PCRs that --pcrs names, which the programs would accept.
func (p *plugin) values(o *v1alpha1.AttestedNode) (map[int]string, error) {
	boot := o.Status.Boot
	wanted := p.pcrs
	if len(wanted) == 0 {
		wanted = indexes(boot)
	}
	values := map[int]string{}
	for _, index := range wanted {
		value, quoted := boot.PCRs[strconv.Itoa(index)]
		if !quoted {
			return nil, fmt.Errorf("node %s has no value of PCR %d: its quotes do not have it", o.Name, index)
		}
		values[index] = value
	}
	if err := settings.CheckGoodPCRs([]map[int]string{values}); err != nil {
		return nil, fmt.Errorf("the values of node %s cannot be allowed: %w", o.Name, err)
	}
	return values, nil
}

// exportable returns the nodes of these names; without names, all whose machine is recorded, has a valid
// certificate and in whose last boot no fault was found. The boot of a machine with other values than goodPCRs is in
// its status too: it would be allowed together with the good ones.
func (p *plugin) exportable(ctx context.Context, names []string) ([]*v1alpha1.AttestedNode, error) {
	var all []*v1alpha1.AttestedNode
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		o, err := p.booted(ctx, name)
		if err != nil {
			return nil, err
		}
		if o.Status.Boot.Machine != o.Spec.Machine {
			return nil, fmt.Errorf("the measurements of node %s are of another machine than it is now: wait until it has attested again", name)
		}
		all = append(all, o)
	}
	if len(names) != 0 {
		return all, nil
	}
	var insecure []string
	without := 0
	err := pages(ctx, p.client, func() *v1alpha1.AttestedNodeList { return new(v1alpha1.AttestedNodeList) }, func(l *v1alpha1.AttestedNodeList) {
		for i := range l.Items {
			o := &l.Items[i]
			switch boot := o.Status.Boot; {
			case !inUse(&o.Spec, p.now()):
			case boot == nil || len(boot.PCRs) == 0 || boot.Machine != o.Spec.Machine:
				without++
			case len(boot.Wrong) != 0 || boot.SecureBoot != "" && boot.SecureBoot != string(settings.SecureBootOn):
				insecure = append(insecure, o.Name)
			default:
				all = append(all, &v1alpha1.AttestedNode{ObjectMeta: o.ObjectMeta, Status: o.Status})
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if without != 0 {
		fmt.Fprintf(p.err, "warning: left out, as they sent no quote or have not attested since their machine changed: %d of the nodes\n", without)
	}
	if len(insecure) != 0 {
		fmt.Fprintf(p.err, "warning: left out, as Secure Boot is off or unknown or their last boot has another fault: %s; give the names of nodes to take them\n", refusal.Text(strings.Join(insecure, " ")))
	}
	if len(all) == 0 {
		return nil, errors.New("no node has measurements that can be allowed: set quote: true in evidence.tpm of kubelet-authenticator.yaml on the nodes")
	}
	return all, nil
}

// inUse reports whether a machine is recorded as the node, with a certificate that may be valid.
func inUse(s *v1alpha1.AttestedNodeSpec, now time.Time) bool {
	return s.State == v1alpha1.NodeBound && s.LastEnd != nil && s.LastEnd.Time.After(now)
}
