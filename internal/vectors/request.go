package main

import (
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

func (w *world) addRequests(good func() *forge.Asked, table []forge.RequestAttack) {
	for _, t := range table {
		a := good()
		t.Change(a)
		w.add(&vector.Vector{Name: t.Name, Class: "request", Level: vector.LevelRequest, Description: t.What, Expect: t.Expect,
			Package: vector.PackageCSR, Also: t.Also, Retry: t.Retry, Environment: w.under(t.Under), TargetSigner: a.Target, Object: a.Encode()})
	}
}

// under is the environment of a request attack.
func (w *world) under(policy string) *vector.Environment {
	switch policy {
	case forge.UnderFlag:
		return &vector.Environment{Policy: w.flagPolicy()}
	case forge.UnderProviderID:
		return &vector.Environment{Policy: w.policyWith(func(p *vector.Policy) { p.RequireProviderID = true })}
	case forge.UnderNoMachines:
		return &vector.Environment{Machines: []vector.Machine{}}
	}
	return nil
}

func (w *world) policyWith(how func(*vector.Policy)) *vector.Policy {
	p := *w.set.Environment.Policy
	how(&p)
	return &p
}

// flagPolicy knows a flag, and asks for it.
func (w *world) flagPolicy() *vector.Policy {
	return w.policyWith(func(p *vector.Policy) { p.Flag, p.RequireFlag = "2.999.3", true })
}

// requests are attacks on requests that the node policy sees.
func (w *world) requests() {
	for _, t := range w.RequestTables() {
		w.addRequests(t.Good, t.Attacks)
	}
	w.addRequests(w.KubeletServes, forge.KubeletAttacks())
}
