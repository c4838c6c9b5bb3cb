"""Source is generated here: a small loop IR with a printed form, a validator, an interpreter and printers."""
