package authenticator

import (
	"errors"
	"strconv"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// refuses has the control plane deny each request with a reason, and a message that names the check.
func (f *fakeAPI) refuses(reason, message string) {
	f.set(func() {
		f.decide = func(o *certificatesv1.CertificateSigningRequest) bool {
			condition(o, "Denied", reason, message)
			return true
		}
	})
}

// touch changes the time of each denial, as the controller does once the record of the node has changed.
func (f *fakeAPI) touch() {
	f.set(func() {
		for name, o := range f.objects {
			o = o.DeepCopy()
			for n := range o.Status.Conditions {
				o.Status.Conditions[n].LastUpdateTime = metav1.Now()
			}
			f.version++
			o.ResourceVersion = strconv.Itoa(f.version)
			f.objects[name] = o
		}
		f.changed.Broadcast()
	})
}

// TestAdmitted: once an operator has admitted a denied machine, its daemon tries again within seconds, although the
// pause would be minutes. Until then it has one open watch.
func TestAdmitted(t *testing.T) {
	f := newFakeAPI(t)
	f.refuses("NotAMember", "not-a-member: the machine")
	a, kind := newNode(t, f, nil)
	l := testkit.Must(a.store.TryLock())
	testkit.MustDo(errors.Join(a.note(l, ClientFile, func(t *attempts, _ time.Time) { t.Failures = 9 }), l.Unlock())) // of earlier hours
	run(t, a)
	eventually(t, "the watch of the denied request", func() bool { return f.calls("watch") == 2 })
	if pause := time.Until(a.readState()[ClientFile].Next); pause < lastDenied/3 {
		t.Fatalf("the pause is %s", pause)
	}
	if a.deniedAs.Load() != nil {
		t.Error("the credential of the denied request is kept outside the watch")
	}
	f.set(func() { f.decide = nil })
	began := time.Now()
	f.touch()
	eventually(t, "a certificate", func() bool { return a.stored(ClientFile) != nil })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the certificate came %s after the machine was admitted", took)
	}
	if n := kind.opened.Load(); n != 2 || f.calls("create") != 3 || f.calls("get") != 0 {
		t.Errorf("%d attempts, %d requests, %d reads", n, f.calls("create"), f.calls("get"))
	}
}

// TestNotAdmitted: a control plane that changes its denials all the time has a node try at growing intervals, and a
// denial that no operator's act ends is not watched.
func TestNotAdmitted(t *testing.T) {
	f := newFakeAPI(t)
	a, _ := newNode(t, f, nil)
	at := f.now()
	began := at
	a.config.Now = func() time.Time { return at }
	v := a.snapshot(caller{daemon: true})
	denied := &deniedError{condition: certificatesv1.CertificateSigningRequestCondition{Type: "Denied", Reason: "NotAMember", Message: "not-a-member: the machine"}}
	for range 12 { // each is hurried at once
		testkit.MustDo(errors.Join(a.begin(nil, a.slots[0]), a.end(nil, a.slots[0], "", denied)))
		v.follow(t.Context(), denied)
		v.hurry()
		at = a.readState()[ClientFile].Next
	}
	if took := at.Sub(began); took < 20*time.Minute {
		t.Errorf("twelve attempts in %s", took)
	}
	for reason, message := range map[string]string{"QualifyingData": "qualifying-data: others", "HelloExpired": "", "": ""} {
		e := &deniedError{condition: certificatesv1.CertificateSigningRequestCondition{Type: "Denied", Reason: reason, Message: message},
			filed: new(certificatesv1.CertificateSigningRequest)}
		if e.awaits() {
			t.Errorf("a denial with reason %q is watched", reason)
		}
	}
}
