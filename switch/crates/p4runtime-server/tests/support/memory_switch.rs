//! A switch without packets: the tables, arrays and groups of a compiled program (BMv2 JSON) in
//! memory. It keeps every rule that the control traits state, so that tests hold for any
//! other implementation too.

use std::any::Any;
use std::collections::BTreeMap;

use dataplane::control::*;
use dataplane::ports::*;
use dataplane::switch::{CompiledProgram, Compiler, ProgramInfo, Switch};
use p4runtime_server::PacketInSender;
use serde_json::Value;

struct Table {
    default: Option<ActionCall>,
    initial_default: Option<ActionCall>,
    entries: Vec<TableEntry>,
}

/// The switch. Packet-outs come back as packet-ins with the same header.
pub struct MemorySwitch {
    program: ProgramInfo,
    tables: Vec<Table>,
    counters: Vec<Vec<CounterValue>>,
    meters: Vec<Vec<Option<MeterConfig>>>,
    registers: Vec<Vec<Bits>>,
    groups: BTreeMap<u32, Vec<Replica>>,
    ports: Vec<PortSettings>,
    packet_in: PacketInSender,
}

impl MemorySwitch {
    pub fn new(packet_in: PacketInSender) -> Self {
        let ports = (1..=2)
            .map(|port| PortSettings {
                port,
                interface: format!("veth{port}"),
                up: true,
                line_rate: LineRate::Unlimited,
                counts: LineCounting::Wire,
                fifo_bytes: 65_536,
                delay_ns: 0,
            })
            .collect();
        Self {
            program: ProgramInfo::default(),
            tables: Vec::new(),
            counters: Vec::new(),
            meters: Vec::new(),
            registers: Vec::new(),
            groups: BTreeMap::new(),
            ports,
            packet_in,
        }
    }

    fn table(&mut self, table: usize) -> ControlResult<(&TableInfo, &mut Table)> {
        let info = self.program.tables.get(table);
        match (info, self.tables.get_mut(table)) {
            (Some(info), Some(table)) => Ok((info, table)),
            _ => Err(ControlError::NotFound(format!("table {table}"))),
        }
    }

    fn entry(&mut self, table: usize, key: &EntryKey) -> ControlResult<&mut TableEntry> {
        self.table(table)?
            .1
            .entries
            .iter_mut()
            .find(|entry| entry.key == *key)
            .ok_or_else(|| ControlError::NotFound("no such entry".to_owned()))
    }

    fn check_replicas(&self, replicas: &[Replica]) -> ControlResult<()> {
        for replica in replicas {
            if !self.ports.iter().any(|port| port.port == replica.port) {
                return Err(ControlError::InvalidArgument(format!(
                    "port {}: no such port",
                    replica.port
                )));
            }
        }
        Ok(())
    }
}

fn cell<T: Clone>(arrays: &[Vec<T>], array: usize, index: usize) -> ControlResult<T> {
    arrays
        .get(array)
        .and_then(|cells| cells.get(index))
        .cloned()
        .ok_or_else(|| ControlError::NotFound(format!("array {array}, cell {index}")))
}

fn set_cell<T>(arrays: &mut [Vec<T>], array: usize, index: usize, value: T) -> ControlResult<()> {
    *arrays
        .get_mut(array)
        .and_then(|cells| cells.get_mut(index))
        .ok_or_else(|| ControlError::NotFound(format!("array {array}, cell {index}")))? = value;
    Ok(())
}

impl DataPlane for MemorySwitch {
    fn tables(&self) -> &[TableInfo] {
        &self.program.tables
    }

    fn actions(&self) -> &[ActionInfo] {
        &self.program.actions
    }

    fn counters(&self) -> &[ArrayInfo] {
        &self.program.counters
    }

    fn meters(&self) -> &[(ArrayInfo, MeterUnit)] {
        &self.program.meters
    }

    fn registers(&self) -> &[ArrayInfo] {
        &self.program.registers
    }

    fn table_insert(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()> {
        let (info, table) = self.table(table)?;
        if info.const_entries {
            return Err(ControlError::PermissionDenied(format!(
                "{}: const entries",
                info.name
            )));
        }
        if table.entries.iter().any(|entry| entry.key == *key) {
            return Err(ControlError::AlreadyExists(
                "the entry exists already".to_owned(),
            ));
        }
        if table.entries.len() >= info.size {
            return Err(ControlError::ResourceExhausted(format!(
                "{}: the table is full ({} entries)",
                info.name, info.size
            )));
        }
        table.entries.push(TableEntry {
            key: key.clone(),
            action: action.clone(),
            indirect: None,
            counter: info.direct_counter.then(CounterValue::default),
            meter: None,
            idle: None,
        });
        Ok(())
    }

    fn table_modify(
        &mut self,
        table: usize,
        key: &EntryKey,
        action: &ActionCall,
    ) -> ControlResult<()> {
        self.entry(table, key)?.action = action.clone();
        Ok(())
    }

    fn table_delete(&mut self, table: usize, key: &EntryKey) -> ControlResult<RemovedEntry> {
        self.entry(table, key)?;
        let (_, table) = self.table(table)?;
        let at = table.entries.iter().position(|entry| entry.key == *key);
        let at = at.ok_or_else(|| ControlError::NotFound("no such entry".to_owned()))?;
        Ok(RemovedEntry(Box::new((at, table.entries.remove(at)))))
    }

    fn table_restore(&mut self, table: usize, removed: RemovedEntry) -> ControlResult<()> {
        let (_, table) = self.table(table)?;
        let removed = removed.0.downcast::<(usize, TableEntry)>();
        let (at, entry) = *removed.map_err(|_| wrong("removed entry"))?;
        table.entries.insert(at, entry);
        Ok(())
    }

    fn table_entry(&self, table: usize, key: &EntryKey) -> ControlResult<TableEntry> {
        self.tables
            .get(table)
            .and_then(|table| table.entries.iter().find(|entry| entry.key == *key))
            .cloned()
            .ok_or_else(|| ControlError::NotFound("no such entry".to_owned()))
    }

    fn table_entries(&self, table: usize, from: u64, most: usize) -> EntryPage {
        let entries = self.tables.get(table).map_or(&[][..], |t| &t.entries);
        let rest = entries.get(from as usize..).unwrap_or(&[]);
        EntryPage {
            entries: rest.iter().take(most).cloned().collect(),
            next: (rest.len() > most).then(|| from + most as u64),
        }
    }

    fn table_default(&self, table: usize) -> Option<ActionCall> {
        self.tables
            .get(table)
            .and_then(|table| table.default.clone())
    }

    fn table_set_default(
        &mut self,
        table: usize,
        action: Option<&ActionCall>,
    ) -> ControlResult<()> {
        let (_, table) = self.table(table)?;
        table.default = action.cloned().or_else(|| table.initial_default.clone());
        Ok(())
    }

    fn direct_counter_set(
        &mut self,
        table: usize,
        key: &EntryKey,
        value: CounterValue,
    ) -> ControlResult<()> {
        self.entry(table, key)?.counter = Some(value);
        Ok(())
    }

    fn direct_meter_set(
        &mut self,
        table: usize,
        key: &EntryKey,
        config: Option<MeterConfig>,
    ) -> ControlResult<()> {
        self.entry(table, key)?.meter = config;
        Ok(())
    }

    fn counter_read(&self, counter: usize, index: usize) -> ControlResult<CounterValue> {
        cell(&self.counters, counter, index)
    }

    fn counter_write(
        &mut self,
        counter: usize,
        index: usize,
        value: CounterValue,
    ) -> ControlResult<()> {
        set_cell(&mut self.counters, counter, index, value)
    }

    fn meter_read(&self, meter: usize, index: usize) -> ControlResult<Option<MeterConfig>> {
        cell(&self.meters, meter, index)
    }

    fn meter_write(
        &mut self,
        meter: usize,
        index: usize,
        config: Option<MeterConfig>,
    ) -> ControlResult<()> {
        set_cell(&mut self.meters, meter, index, config)
    }

    fn register_read(&self, register: usize, index: usize) -> ControlResult<Bits> {
        cell(&self.registers, register, index)
    }

    fn register_write(&mut self, register: usize, index: usize, value: &[u8]) -> ControlResult<()> {
        set_cell(&mut self.registers, register, index, value.into())
    }

    fn multicast_insert(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        self.check_replicas(replicas)?;
        if self.groups.contains_key(&group) {
            return Err(ControlError::AlreadyExists("exists already".to_owned()));
        }
        self.groups.insert(group, replicas.to_vec());
        Ok(())
    }

    fn multicast_modify(&mut self, group: u32, replicas: &[Replica]) -> ControlResult<()> {
        self.check_replicas(replicas)?;
        match self.groups.get_mut(&group) {
            Some(known) => {
                *known = replicas.to_vec();
                Ok(())
            }
            None => Err(ControlError::NotFound("no such group".to_owned())),
        }
    }

    fn multicast_delete(&mut self, group: u32) -> ControlResult<()> {
        match self.groups.remove(&group) {
            Some(_) => Ok(()),
            None => Err(ControlError::NotFound("no such group".to_owned())),
        }
    }

    fn multicast_groups(&self) -> Vec<(u32, Vec<Replica>)> {
        self.groups.clone().into_iter().collect()
    }

    fn packet_out(&mut self, frame: &[u8]) -> ControlResult<()> {
        self.packet_in.send(frame);
        Ok(())
    }
}

impl TrafficManagerControl for MemorySwitch {
    fn ports(&self) -> Vec<PortSettings> {
        self.ports.clone()
    }

    fn set_port(&mut self, port: u32, change: &PortChange) -> ControlResult<PortSettings> {
        let Some(settings) = self.ports.iter_mut().find(|known| known.port == port) else {
            return Err(ControlError::NotFound(format!("port {port}: no such port")));
        };
        settings.line_rate = change.line_rate.unwrap_or(settings.line_rate);
        settings.counts = change.counts.unwrap_or(settings.counts);
        settings.fifo_bytes = change.fifo_bytes.unwrap_or(settings.fifo_bytes);
        settings.delay_ns = change.delay_ns.unwrap_or(settings.delay_ns);
        Ok(settings.clone())
    }

    fn statistics(&self, class_ids: &[u32]) -> Statistics {
        Statistics {
            classes: class_ids
                .iter()
                .map(|class_id| ClassState {
                    class_id: *class_id,
                    ..ClassState::default()
                })
                .collect(),
            ports: self
                .ports
                .iter()
                .map(|port| PortStatistics {
                    port: port.port,
                    ..PortStatistics::default()
                })
                .collect(),
            ..Statistics::default()
        }
    }
}

impl Switch for MemorySwitch {
    fn install(&mut self, compiled: CompiledProgram) -> ControlResult<Box<dyn Any + Send>> {
        let program = compiled.info;
        let tables = compiled
            .code
            .downcast::<Vec<Table>>()
            .map_err(|_| wrong("program"))?;
        self.counters = program
            .counters
            .iter()
            .map(|array| vec![CounterValue::default(); array.size])
            .collect();
        self.meters = program
            .meters
            .iter()
            .map(|(array, _)| vec![None; array.size])
            .collect();
        self.registers = program
            .registers
            .iter()
            .map(|array| vec![vec![0; bytes(array.bits)].into_boxed_slice(); array.size])
            .collect();
        self.program = program;
        self.groups.clear();
        Ok(Box::new(std::mem::replace(&mut self.tables, *tables)))
    }
}

/// Compiles for a [`MemorySwitch`].
pub struct MemoryCompiler;

impl Compiler for MemoryCompiler {
    fn compile(&self, bmv2_json: &[u8]) -> ControlResult<CompiledProgram> {
        let (info, tables) = outline(bmv2_json)?;
        Ok(CompiledProgram {
            info,
            code: Box::new(tables),
        })
    }
}

fn bytes(bits: u32) -> usize {
    bits.div_ceil(8) as usize
}

fn wrong(what: &str) -> ControlError {
    ControlError::InvalidArgument(format!("{what}: not as in BMv2 JSON"))
}

fn list<'a>(value: &'a Value, name: &str) -> ControlResult<&'a Vec<Value>> {
    value
        .get(name)
        .and_then(Value::as_array)
        .ok_or_else(|| wrong(name))
}

fn text(value: &Value, name: &str) -> ControlResult<String> {
    value
        .get(name)
        .and_then(Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| wrong(name))
}

fn number(value: &Value, name: &str) -> ControlResult<u64> {
    value
        .get(name)
        .and_then(Value::as_u64)
        .ok_or_else(|| wrong(name))
}

/// A hexadecimal constant as a value of `bits` bits.
fn constant(value: &Value, bits: u32) -> ControlResult<Bits> {
    let digits = value
        .as_str()
        .and_then(|text| text.strip_prefix("0x"))
        .ok_or_else(|| wrong("constant"))?;
    let number = u64::from_str_radix(digits, 16).map_err(|_| wrong("constant"))?;
    let all = number.to_be_bytes();
    let length = bytes(bits);
    let start = all
        .len()
        .checked_sub(length)
        .ok_or_else(|| wrong("wide constant"))?;
    Ok(all[start..].into())
}

/// What a program offers, and its tables with their first entries.
fn outline(json: &[u8]) -> ControlResult<(ProgramInfo, Vec<Table>)> {
    let json: Value = serde_json::from_slice(json)
        .map_err(|error| ControlError::InvalidArgument(format!("not JSON: {error}")))?;
    let mut program = ProgramInfo::default();
    for action in list(&json, "actions")? {
        let params = list(action, "runtime_data")?
            .iter()
            .map(|param| Ok((text(param, "name")?, number(param, "bitwidth")? as u32)))
            .collect::<ControlResult<_>>()?;
        program.actions.push(ActionInfo {
            name: text(action, "name")?,
            params,
        });
    }
    let unit = |meter: &Value| {
        Ok(match text(meter, "type")?.as_str() {
            "bytes" => MeterUnit::Bytes,
            _ => MeterUnit::Packets,
        })
    };
    let array = |value: &Value, bits: u32| {
        Ok::<_, ControlError>(ArrayInfo {
            name: text(value, "name")?,
            size: number(value, "size")? as usize,
            bits,
        })
    };
    let direct = |value: &&Value| value.get("is_direct") == Some(&Value::Bool(true));
    for counter in list(&json, "counter_arrays")?.iter().filter(|v| !direct(v)) {
        program.counters.push(array(counter, 0)?);
    }
    for meter in list(&json, "meter_arrays")?.iter().filter(|v| !direct(v)) {
        program.meters.push((array(meter, 0)?, unit(meter)?));
    }
    for register in list(&json, "register_arrays")? {
        let bits = number(register, "bitwidth")? as u32;
        program.registers.push(array(register, bits)?);
    }
    let mut tables = Vec::new();
    for pipeline in list(&json, "pipelines")? {
        for table in list(pipeline, "tables")? {
            let (info, table) = outline_table(&json, table, &program.actions, unit)?;
            program.tables.push(info);
            tables.push(table);
        }
    }
    Ok((program, tables))
}

fn outline_table(
    json: &Value,
    table: &Value,
    actions: &[ActionInfo],
    unit: impl Fn(&Value) -> ControlResult<MeterUnit>,
) -> ControlResult<(TableInfo, Table)> {
    let name = text(table, "name")?;
    let mut key = Vec::new();
    for field in list(table, "key")? {
        key.push(KeyField {
            name: text(field, "name")?,
            kind: match text(field, "match_type")?.as_str() {
                "exact" => MatchKind::Exact,
                "lpm" => MatchKind::Lpm,
                "ternary" => MatchKind::Ternary,
                "range" => MatchKind::Range,
                _ => return Err(wrong("match_type")),
            },
            bits: field_bits(json, field)?,
        });
    }
    let call = |entry: &Value| {
        let action = number(entry, "action_id")? as usize;
        let params = &actions
            .get(action)
            .ok_or_else(|| wrong("action_id"))?
            .params;
        let args = list(entry, "action_data")?
            .iter()
            .zip(params)
            .map(|(value, (_, bits))| constant(value, *bits))
            .collect::<ControlResult<_>>()?;
        Ok::<_, ControlError>(ActionCall { action, args })
    };
    let default = table.get("default_entry").filter(|entry| !entry.is_null());
    let initial_default = default.map(call).transpose()?;
    let mut entries = Vec::new();
    for entry in table
        .get("entries")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let fields = list(entry, "match_key")?
            .iter()
            .zip(&key)
            .map(|(field, known)| {
                let value = field.get("key").ok_or_else(|| wrong("key"))?;
                Ok(MatchField::Exact(constant(value, known.bits)?))
            })
            .collect::<ControlResult<_>>()?;
        let action = entry.get("action_entry").ok_or_else(|| wrong("entry"))?;
        entries.push(TableEntry {
            key: EntryKey {
                fields,
                priority: 0,
            },
            action: call(action)?,
            indirect: None,
            counter: None,
            meter: None,
            idle: None,
        });
    }
    let direct_meter = match table.get("direct_meters").and_then(Value::as_str) {
        None => None,
        Some(name) => {
            let meters = list(json, "meter_arrays")?;
            let meter = meters
                .iter()
                .find(|meter| meter.get("name").and_then(Value::as_str) == Some(name));
            Some(unit(meter.ok_or_else(|| wrong("direct_meters"))?)?)
        }
    };
    let info = TableInfo {
        name,
        key,
        actions: list(table, "action_ids")?
            .iter()
            .filter_map(Value::as_u64)
            .map(|id| id as usize)
            .collect(),
        size: number(table, "max_size")? as usize,
        const_entries: !entries.is_empty(),
        const_default: default
            .is_some_and(|entry| entry.get("action_const") == Some(&Value::Bool(true))),
        direct_counter: table.get("with_counters") == Some(&Value::Bool(true)),
        direct_meter,
        profile: None,
        idle_timeout: false,
    };
    let table = Table {
        default: initial_default.clone(),
        initial_default,
        entries,
    };
    Ok((info, table))
}

/// The width of the header field that a key field names.
fn field_bits(json: &Value, field: &Value) -> ControlResult<u32> {
    let target = list(field, "target")?;
    let (Some(header), Some(member)) = (
        target.first().and_then(Value::as_str),
        target.get(1).and_then(Value::as_str),
    ) else {
        return Err(wrong("target"));
    };
    let find = |name: &str, wanted: &str| {
        list(json, name)?
            .iter()
            .find(|value| value.get("name").and_then(Value::as_str) == Some(wanted))
            .ok_or_else(|| wrong(wanted))
    };
    let kind = text(find("headers", header)?, "header_type")?;
    list(find("header_types", &kind)?, "fields")?
        .iter()
        .find(|field| field.get(0).and_then(Value::as_str) == Some(member))
        .and_then(|field| field.get(1))
        .and_then(Value::as_u64)
        .map(|bits| bits as u32)
        .ok_or_else(|| wrong(member))
}
