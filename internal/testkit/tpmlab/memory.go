package tpmlab

import (
	"reflect"
	"sync"
)

// ForgetSignatures empties a *tpm.Kind's memory of verified signatures, for the
// benchmarks of a verifier that sees a machine, or intermediates too, for the first time.
// Only tests forget, so it reaches into the kind and the verifiers of package tpmcert.
func ForgetSignatures(kind any, intermediates bool) {
	k := reflect.ValueOf(kind).Elem()
	if aks := k.FieldByName("aks"); !aks.IsNil() {
		forget(aks.Elem().FieldByName("issuers").Index(0).Elem().FieldByName("anchors").Elem(), intermediates)
	}
	if eks := k.FieldByName("eks"); !eks.IsNil() {
		forget(eks.Elem(), intermediates)
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
