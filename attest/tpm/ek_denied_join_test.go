package tpm_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// certifiedFirmware is the version in tpmsim's certificates: 1.0.
const certifiedFirmware = 1 << 16

// denying is a control plane like another one, with a deny-list.
func denying(t *testing.T, plane *attesttest.ControlPlane, n *attesttest.Node, denied ...tpmcert.DeniedTPM) *attesttest.ControlPlane {
	t.Helper()
	again := attesttest.NewControlPlane(t, n)
	var err error
	if again.TPM.EKs, err = tpmcert.NewEKVerifier(tpmcert.EKVerifierConfig{Denied: denied,
		Issuers: []tpmcert.EKIssuer{{Roots: n.Roots(), Profile: tpmcert.EKProfileTCG()}}}); err != nil {
		t.Fatal(err)
	}
	again.Config.KeyRing = plane.Config.KeyRing // so that it verifies answers to the other one's challenges
	again.Verifier = planeVerifier(t, again)
	return again
}

func deniedOf(vendor, model string, first, last uint32) tpmcert.DeniedTPM {
	return tpmcert.DeniedTPM{Vendor: vendor, Model: model, First: first, Last: last, Reason: "a test"}
}

// A TPM whose manufacturer and certified firmware are on the list is refused at its
// hello, and at an answer that another replica's older list let through; one that is
// not on the list joins.
func TestDeniedByCertificate(t *testing.T) {
	ctx := context.Background()
	s := newStage(t, attesttest.NodeOptions{TPM: tpmsim.New(t, everyEK()), Road: attest.RoadEK})
	for name, c := range map[string]struct {
		denied tpmcert.DeniedTPM
		want   bool
	}{
		"every version":        {deniedOf("SIM", "", 0, 0xffffffff), true},
		"this version":         {deniedOf("SIM", "", certifiedFirmware, certifiedFirmware), true},
		"this model":           {deniedOf("SIM", "tpmsim", certifiedFirmware, certifiedFirmware), true},
		"versions under":       {deniedOf("SIM", "", 0, certifiedFirmware-1), false},
		"versions over":        {deniedOf("SIM", "", certifiedFirmware+1, certifiedFirmware+2), false},
		"another model":        {deniedOf("SIM", "another", 0, 0xffffffff), false},
		"another vendor":       {deniedOf("IFX", "", 0, 0xffffffff), false},
		"vendor in lower case": {deniedOf("sim", "", 0, 0xffffffff), true},
		"vendor as an ID":      {deniedOf("id:53494D00", "", 0, 0xffffffff), true},
	} {
		t.Run(name, func(t *testing.T) {
			plane := denying(t, s.plane, s.node, c.denied)
			_, joined := plane.Join(ctx, s.node)
			_, verified := plane.Verifier.Verify(ctx, s.good)
			for step, err := range map[string]error{"join": joined, "answer": verified} {
				if errors.Is(err, tpmcert.CheckTPMDenied) != c.want || !c.want && err != nil {
					t.Errorf("%s: %s: %v", name, step, err)
				}
				if c.want && !strings.Contains(err.Error(), "with firmware 1.0") {
					t.Errorf("%s: %s: %v", name, step, err)
				}
			}
		})
	}
	noHandles(t, s.node.TPM)
}

// The version of the running firmware counts too: the hello, which does not state it yet, is
// challenged, and the answer is refused.
func TestDeniedByRunningFirmware(t *testing.T) {
	ctx := context.Background()
	s := newStage(t, attesttest.NodeOptions{TPM: tpmsim.New(t, everyEK()), Road: attest.RoadEK})
	r, err := s.plane.Verifier.Verify(ctx, s.good)
	testkit.NoError(t, err)
	running := uint32(tpmkind.DetailsOf(r).Clock.FirmwareVersion >> 32)
	if !tpmkind.DetailsOf(r).Clock.Plain || running == certifiedFirmware || running == 0 {
		t.Fatalf("running firmware %#x, plain %t", running, tpmkind.DetailsOf(r).Clock.Plain)
	}
	for name, c := range map[string]struct {
		denied tpmcert.DeniedTPM
		want   bool
	}{
		"this version":   {deniedOf("SIM", "", running, running), true},
		"this model":     {deniedOf("SIM", "tpmsim", running-1, running+1), true},
		"versions under": {deniedOf("SIM", "", certifiedFirmware+1, running-1), false},
		"versions over":  {deniedOf("SIM", "", running+1, 0xffffffff), false},
		"another model":  {deniedOf("SIM", "another", running, running), false},
		"another vendor": {deniedOf("STM", "", running, running), false},
	} {
		t.Run(name, func(t *testing.T) {
			plane := denying(t, s.plane, s.node, c.denied)
			challenge, err := plane.Challenge(ctx, s.node)
			if err != nil {
				t.Errorf("%s: hello: %v", name, err)
				return
			}
			answer, err := s.node.Answer(ctx, challenge, plane.Now())
			testkit.NoError(t, err)
			_, err = plane.Verifier.Verify(ctx, answer)
			if errors.Is(err, tpmcert.CheckTPMDenied) != c.want || !c.want && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if c.want && !strings.Contains(err.Error(), "with running firmware ") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	noHandles(t, s.node.TPM)
}

// A TPM obfuscates the version for keys of the owner hierarchy: the version in such an AK's
// statement is not compared with a list. The certificate's is.
func TestObfuscatedFirmwareIsNotOnTheList(t *testing.T) {
	ctx := context.Background()
	const handle = 0x81008f77
	device := tpmsim.New(t, everyEK())
	persistOwnerAK(t, device, handle)
	s := newStage(t, attesttest.NodeOptions{TPM: device, Road: attest.RoadEK, AK: tpmkind.AKSource{Handle: handle}})
	r, err := s.plane.Verifier.Verify(ctx, s.good)
	testkit.NoError(t, err)
	if tpmkind.DetailsOf(r).Clock.Plain {
		t.Fatal("the version counts as plain")
	}
	said := uint32(tpmkind.DetailsOf(r).Clock.FirmwareVersion >> 32)
	plane := denying(t, s.plane, s.node, deniedOf("SIM", "", max(said, certifiedFirmware+1), max(said, certifiedFirmware+1)))
	if _, err := plane.Join(ctx, s.node); err != nil {
		t.Errorf("%#x: %v", said, err)
	}
	plane = denying(t, s.plane, s.node, deniedOf("SIM", "", certifiedFirmware, certifiedFirmware))
	if _, err := plane.Join(ctx, s.node); !errors.Is(err, tpmcert.CheckTPMDenied) {
		t.Errorf("by the certificate: %v", err)
	}
}

// persistOwnerAK makes an AK in the owner hierarchy, and keeps it at a handle.
func persistOwnerAK(t *testing.T, device *tpmsim.TPM, handle tpm2.TPMHandle) {
	t.Helper()
	template := tpmkind.AKTemplateECDSAP256()
	ak, err := (tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(*template)}).Execute(device)
	testkit.NoError(t, err)
	if _, err := (tpm2.EvictControl{Auth: tpm2.TPMRHOwner, ObjectHandle: tpm2.NamedHandle{Handle: ak.ObjectHandle, Name: ak.Name}, PersistentHandle: handle}).Execute(device); err != nil {
		t.Fatal(err)
	}
	if _, err := (tpm2.FlushContext{FlushHandle: ak.ObjectHandle}).Execute(device); err != nil {
		t.Fatal(err)
	}
}
