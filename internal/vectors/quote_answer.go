package main

import (
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// quotedAnswers are answers with a quote.
func (w *world) quotedAnswers() {
	quoted := func() *forge.Forgery { return w.Forge(w.AKP256, forge.Join{}).WithQuote() }
	good := &vector.Environment{GoodPCRs: []vector.PCR{pcrOf(forge.PCRValue(forge.BankSHA256, 0)), pcrOf(forge.PCRValue(forge.BankSHA256, 7))}}
	w.addGood("quote-in-answer", "The answer carries a quote, over the same challenge by the same AK, of the values that are asked for.", quoted().Answer(), good, resultOf(true))
	w.addGood("quote-in-answer-unasked", "The answer carries a quote that nobody asks for.", quoted().Answer(), nil, resultOf(true))
	f := quoted()
	f.Behind = func(s []message.Statement) []message.Statement {
		return append(s, forge.EventLog())
	}
	w.addGood("quote-and-event-log-in-answer", "An event log stands behind the quote, and nobody asks for it.", f.Answer(), nil, resultOf(true))
	for _, a := range forge.QuotedAttacks() {
		f := quoted()
		a.Change(f)
		v := &vector.Vector{Name: "answer-" + a.Name, Class: "binding", Level: vector.LevelVerify, Description: a.What, Expect: a.Expect,
			Package: vector.PackageAttest, Object: f.Answer()}
		if a.Wanted {
			v.Environment = good
		}
		w.add(v)
	}
}
