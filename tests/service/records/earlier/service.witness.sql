BEGIN TRANSACTION;
CREATE TABLE witnessed_events (
	position INTEGER NOT NULL, 
	sequence BIGINT NOT NULL, 
	at DATETIME, 
	kind VARCHAR(40), 
	body TEXT, 
	previous VARCHAR(64), 
	hash VARCHAR(64) NOT NULL, 
	lost_in INTEGER, 
	PRIMARY KEY (position)
);
INSERT INTO "witnessed_events" VALUES(1,0,NULL,NULL,NULL,NULL,'0000000000000000000000000000000000000000000000000000000000000000',NULL);
INSERT INTO "witnessed_events" VALUES(2,1,'2026-11-22 12:12:11.883074','budget.opened','{"by":"","delta":"0.0002","epsilon":"8","knowledge_base":"toys"}','0000000000000000000000000000000000000000000000000000000000000000','e2cf14a3ee28044d2f4c3d04ea1451e6fa3904e1b3659e92c63a842fdc90dc97',NULL);
INSERT INTO "witnessed_events" VALUES(3,2,'2026-11-22 12:12:13.576471','plan.signed','{"accountant":"pld","answers":{"colour":20},"delta":"0.0001","document":"{\"plan\":{\"knowledge_base\":\"toys\",\"budget\":{\"epsilon\":4.0,\"delta\":0.0001},\"accountant\":\"pld\",\"tasks\":{\"colour\":{\"prompt\":{\"instruction\":\"\",\"exemplar\":\"{text}: {label}\",\"query\":\"{text}:\"},\"shots\":2,\"ensemble\":10,\"answers\":20,\"sampling\":\"units\",\"max_exemplars\":null,\"share\":1.0,\"typical_exemplar_tokens\":60,\"kind\":\"classify\",\"labels\":[\"red\",\"blue\"],\"label_descriptions\":{},\"label_field\":\"label\",\"mechanism\":{\"type\":\"rnm_gaussian\",\"vote\":\"hard\",\"prior_weight\":0.0}}}},\"public_size\":60,\"noise\":{\"colour\":{\"sampling_probability\":0.3333333333333333,\"mechanism\":{\"noise_multiplier\":1.6972131792069929}}},\"epsilon\":{\"pld\":{\"lower\":0.0,\"upper\":3.99723250515175},\"prv\":{\"lower\":3.9809127217038336,\"upper\":4.013544536119967},\"rdp\":{\"lower\":0.0,\"upper\":4.517153771516332}},\"unsupported\":{}}","epsilon":"4.0","knowledge_base":"toys","signed_by":"admin","version":1}','e2cf14a3ee28044d2f4c3d04ea1451e6fa3904e1b3659e92c63a842fdc90dc97','0107dbe1f78323e497306b601ff742f6ad02902f61878ab146da41e2f7858c96',NULL);
INSERT INTO "witnessed_events" VALUES(4,3,'2026-11-22 12:12:13.580483','key.created','{"by":"","key":"51dab0da-5cff-4be1-93bc-385e1dfab27c","name":"desk","quota":null,"rate_per_minute":null,"role":"analyst"}','0107dbe1f78323e497306b601ff742f6ad02902f61878ab146da41e2f7858c96','0ea998d7a273659ed1db2a462414d63fa9bc37572dcf7c4040822aa4a7dfb03c',NULL);
INSERT INTO "witnessed_events" VALUES(5,4,'2026-11-22 12:12:13.601407','charge','{"charge":"f71e6cb1-4706-44fd-a2b2-704d4abe1ab2","key":"51dab0da-5cff-4be1-93bc-385e1dfab27c","task":"toys.colour@1"}','0ea998d7a273659ed1db2a462414d63fa9bc37572dcf7c4040822aa4a7dfb03c','e7070a574dd0c591607df1ac043d5992c7e0148cbb9d7476208f84cf6daa0e0a',NULL);
INSERT INTO "witnessed_events" VALUES(6,5,'2026-11-22 12:12:13.615807','release','{"answer_sha256":"049c0a0f2a68bd907b09d046b0a12445377cbe19f4ee99a9cef52f80f9098291","charge":"f71e6cb1-4706-44fd-a2b2-704d4abe1ab2","release":"ea2d49c7-9d2d-44af-9041-30241e97a05a","task":"toys.colour@1"}','e7070a574dd0c591607df1ac043d5992c7e0148cbb9d7476208f84cf6daa0e0a','b0bcc50d8fd1be1d93c908f5be5d9ed2c07998eb7aa73a65183b97c663125ba5',NULL);
INSERT INTO "witnessed_events" VALUES(7,6,'2026-11-22 12:12:13.630537','charge','{"charge":"e681eee5-d595-41f1-9c69-09d60d4dcbde","key":"51dab0da-5cff-4be1-93bc-385e1dfab27c","task":"toys.colour@1"}','b0bcc50d8fd1be1d93c908f5be5d9ed2c07998eb7aa73a65183b97c663125ba5','7773b6c98eaa5b6cd49b04a43e0651c414f11eef66e138211e3a6de2d05deb4d',NULL);
INSERT INTO "witnessed_events" VALUES(8,7,'2026-11-22 12:12:13.638609','release','{"answer_sha256":"049c0a0f2a68bd907b09d046b0a12445377cbe19f4ee99a9cef52f80f9098291","charge":"e681eee5-d595-41f1-9c69-09d60d4dcbde","release":"ad4df9e8-7633-4c7d-9c76-47ad5e471710","task":"toys.colour@1"}','7773b6c98eaa5b6cd49b04a43e0651c414f11eef66e138211e3a6de2d05deb4d','f2566b9af6cf448cd8c69dcbd162976227c98080b8c2211935de29d15a6becc5',NULL);
INSERT INTO "witnessed_events" VALUES(9,8,'2026-11-22 12:12:13.643272','charge','{"charge":"fbd58bf1-aaf2-4a2f-851a-9a84cdcdb032","key":"51dab0da-5cff-4be1-93bc-385e1dfab27c","task":"toys.colour@1"}','f2566b9af6cf448cd8c69dcbd162976227c98080b8c2211935de29d15a6becc5','b55651347996c3271a06c574449781d9bf93491ef9c0dddd86b3586c11d791fa',NULL);
CREATE UNIQUE INDEX uq_witnessed_events_sequence ON witnessed_events (sequence) WHERE lost_in IS NULL;
CREATE TRIGGER witnessed_no_delete BEFORE DELETE ON witnessed_events FOR EACH ROW BEGIN SELECT RAISE(ABORT, 'what was witnessed cannot be deleted'); END;
CREATE TRIGGER witnessed_only_lost BEFORE UPDATE ON witnessed_events FOR EACH ROW WHEN (OLD.lost_in IS NOT NULL OR NEW.lost_in IS NULL OR OLD.sequence <> NEW.sequence OR OLD.hash <> NEW.hash) BEGIN SELECT RAISE(ABORT, 'what was witnessed cannot be changed'); END;
COMMIT;
