package tpm

import (
	"reflect"
	"sync"
)

// ForgetSignatures empties the kind's memory of verified signatures, for the benchmarks of a
// verifier that sees a machine, or intermediates too, for the first time. Only tests forget,
// so it reaches into the verifiers of package tpmcert.
func (k *Kind) ForgetSignatures(intermediates bool) {
	if k.aks != nil {
		forget(reflect.ValueOf(*k.aks).FieldByName("issuers").Index(0).Elem().FieldByName("anchors").Elem(), intermediates)
	}
	if k.eks != nil {
		forget(reflect.ValueOf(*k.eks), intermediates)
	}
}

// forget empties the memory that a struct of package tpmcert has in the field known.
func forget(of reflect.Value, intermediates bool) {
	memory := of.FieldByName("known").Elem()
	mu := (*sync.RWMutex)(memory.FieldByName("mu").Addr().UnsafePointer())
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"leaves", "known"} {
		if field := memory.FieldByName(name); name == "leaves" || intermediates {
			reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Clear()
		}
	}
}

// For the tests from outside.
var ErrIAK = errIAK
