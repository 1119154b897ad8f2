package controlplane

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// bootsInterval is how often boots are written, and bootsAtATime how many of them at most.
	bootsInterval = time.Second
	bootsAtATime  = 50
	// maxBoots is how many nodes have a boot that waits to be written. More are left out until they attest
	// again.
	maxBoots = 8192
	// bootFresh is how long the boot in a status is not written again if it is the same.
	bootFresh = time.Hour
	// bootsPause is how long nothing is written after a failure, and bootTimeout how long a write may take.
	bootsPause  = time.Minute
	bootTimeout = 5 * time.Second
	// maxWrong is the maximum number of bytes of a text in a status (crd).
	maxWrong = 1024
)

// boots counts the boots of machines, and writes each into the status of the machine's own record. It is a
// manager.Runnable of the replica that decides. No decision waits for it or depends on it.
type boots struct {
	reader  client.Reader // past caches, which leave out the status
	writer  client.SubResourceClientConstructor
	now     func() time.Time
	counted *prometheus.CounterVec

	mu      sync.Mutex
	waiting map[bootOf]*v1alpha1.MeasuredBoot
	resume  time.Time // when writing goes on after a failure
}

// bootOf says whose boot waits: another machine that asks for the node's name replaces none.
type bootOf struct {
	node    string
	machine attest.Identity
}

// newBoots makes one that registers its counter.
func newBoots(reader client.Reader, writer client.SubResourceClientConstructor, r prometheus.Registerer) (*boots, error) {
	b := &boots{reader: reader, writer: writer, now: time.Now, waiting: map[bootOf]*v1alpha1.MeasuredBoot{}, counted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nodeattest_boots_total",
		Help: "Answers of TPMs whose boot was judged, admitted or refused, by tpm.secureBoot (on, off, unknown, or unasked) and by tpm.goodPCRs (good, other, or unasked).",
	}, []string{"secure_boot", "pcrs"})}
	return b, r.Register(b.counted)
}

// judging are Providers whose answers' boots are collected.
type judging struct {
	controller.Providers
	boots *boots
	asked bool // whether there are goodPCRs
}

// Verify is that of the Providers.
func (j judging) Verify(ctx context.Context, request *csr.Request) (*csr.Attested, error) {
	ctx, boot := settings.CollectBoot(ctx)
	attested, err := j.Providers.Verify(ctx, request)
	j.boots.take(nodeOf(request), boot, j.asked)
	return attested, err
}

// nodeOf returns the node name in a request, "" for none.
func nodeOf(request *csr.Request) string {
	r, err := request.Parsed().PKCS10()
	if err != nil {
		return ""
	}
	for _, prefix := range []string{csr.NodeUserPrefix, csr.RecoveryUserPrefix} {
		if name, ok := strings.CutPrefix(r.CSR.Subject.CommonName, prefix); ok {
			return name
		}
	}
	return ""
}

// take counts a boot, and has it written.
func (b *boots) take(node string, boot *settings.Boot, asked bool) {
	if !boot.Judged {
		return
	}
	state, values := "unasked", "unasked"
	if boot.SecureBoot != "" {
		state = strings.ToLower(string(boot.SecureBoot))
	}
	switch {
	case boot.GoodPCRs >= 0:
		values = "good"
	case asked:
		values = "other"
	}
	b.counted.WithLabelValues(state, values).Inc()
	if node == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	of := bootOf{node, boot.Machine}
	if _, known := b.waiting[of]; known || len(b.waiting) < maxBoots {
		b.waiting[of] = b.stored(boot)
	}
}

// stored is a boot as a status has it.
func (b *boots) stored(boot *settings.Boot) *v1alpha1.MeasuredBoot {
	m := &v1alpha1.MeasuredBoot{Time: metav1.NewTime(b.now().UTC().Truncate(time.Second)), Machine: string(boot.Machine), SecureBoot: string(boot.SecureBoot)}
	for _, p := range boot.PCRs {
		if m.PCRs == nil {
			m.PCRs = map[string]string{}
		}
		m.PCRs[strconv.Itoa(p.Index)] = hex.EncodeToString(p.Value)
	}
	if boot.GoodPCRs >= 0 {
		m.GoodPCRs = new(int32(boot.GoodPCRs))
	}
	for _, err := range boot.Wrong {
		m.Wrong = append(m.Wrong, cut(refusal.Escape(err.Error())))
	}
	return m
}

// cut cuts a text in printable characters to maxWrong bytes.
func cut(text string) string {
	const dots = "..."
	if len(text) <= maxWrong {
		return text
	}
	return strings.ToValidUTF8(text[:maxWrong-len(dots)], "") + dots
}

// Start writes until ctx ends.
func (b *boots) Start(ctx context.Context) error { //goroutine: the API server's client alone
	wait.UntilWithContext(ctx, b.write, bootsInterval) //goroutine: in this one; the API server's client alone
	return nil
}

// errChanging: the record is about to change.
var errChanging = errors.New("a change of the record is under way")

// write writes boots that wait. After a failure it stops for a while, so that an API server in trouble
// has one more request a minute.
func (b *boots) write(ctx context.Context) {
	again := map[bootOf]*v1alpha1.MeasuredBoot{} // in the next round
	defer func() {
		for of, boot := range again {
			b.later(of, boot, false)
		}
	}()
	for range bootsAtATime {
		of, boot := b.next()
		if boot == nil {
			return
		}
		err := b.writeOne(ctx, of.node, boot)
		if err == nil {
			continue
		}
		if apierrors.IsConflict(err) || errors.Is(err, errChanging) {
			again[of] = boot
			continue
		}
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) { // as it is, it will never be written, and others wait
			log.FromContext(ctx).Error(err, "the API server refuses the boot of a node, which is left out of the status of its AttestedNode; no decision depends on it", "node", of.node)
			continue
		}
		b.later(of, boot, true)
		if ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "failed to write the boot of a node into the status of its AttestedNode; no decision depends on it, and it is written again", "node", of.node)
		}
		return
	}
}

// later has a boot wait again, unless there is a newer one.
func (b *boots) later(of bootOf, boot *v1alpha1.MeasuredBoot, pause bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, newer := b.waiting[of]; !newer {
		b.waiting[of] = boot
	}
	if pause {
		b.resume = b.now().Add(bootsPause)
	}
}

// next takes out one that waits; nil for none.
func (b *boots) next() (bootOf, *v1alpha1.MeasuredBoot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now().Before(b.resume) {
		return bootOf{}, nil
	}
	for of, boot := range b.waiting { // in no order
		delete(b.waiting, of)
		return of, boot
	}
	return bootOf{}, nil
}

// changing reports whether a change of the record is under way: its pointers name the version of the object, which any
// write changes (package registry). One that has lapsed is overwritten or removed.
func (b *boots) changing(spec *v1alpha1.AttestedNodeSpec) bool {
	ends := spec.Deadline
	if spec.Pending != nil {
		ends = &spec.Pending.Deadline
	}
	return ends != nil && b.now().Before(ends.Time)
}

// writeOne writes the boot into the status of the node's record if that is the record of the machine: one that
// asks for another node's name writes nothing there. It returns errChanging while the record is about to change.
func (b *boots) writeOne(ctx context.Context, node string, boot *v1alpha1.MeasuredBoot) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, errors.New("the API server took too long"))
	defer cancel()
	object := new(v1alpha1.AttestedNode)
	if err := b.reader.Get(ctx, client.ObjectKey{Name: node}, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	last := object.Status.Boot
	changed := last == nil || !sameBoot(last, boot)
	if object.Spec.Machine != boot.Machine || !changed && boot.Time.Sub(last.Time.Time) < bootFresh {
		return nil
	}
	if b.changing(&object.Spec) {
		return errChanging
	}
	if changed && last != nil {
		object.Status.PreviousBoot = last
	}
	object.Status.Boot = boot
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) // none, as the registry has it
	if err := b.writer.SubResource("status").Update(ctx, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if changed {
		log.FromContext(ctx).Info("boot of a node recorded", "node", node, "machine", boot.Machine, "secureBoot", boot.SecureBoot, "goodPCRs", boot.GoodPCRs, "wrong", boot.Wrong)
	}
	return nil
}

// sameBoot compares all but the time.
func sameBoot(a, b *v1alpha1.MeasuredBoot) bool {
	good := a.GoodPCRs == b.GoodPCRs || a.GoodPCRs != nil && b.GoodPCRs != nil && *a.GoodPCRs == *b.GoodPCRs
	return good && a.Machine == b.Machine && a.SecureBoot == b.SecureBoot && maps.Equal(a.PCRs, b.PCRs) && slices.Equal(a.Wrong, b.Wrong)
}
