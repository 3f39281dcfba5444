//! The functions of the service: each finds the module that does it.

use bmv2_thrift::standard::{
    BmActionData, BmActionEntry, BmAddEntryOptions, BmConfig, BmCounterValue, BmCrc16Config,
    BmCrc32Config, BmMatchParams, BmMeterRateConfig, BmMtActProfGroup, BmMtActProfMember,
    BmMtEntry, BmResourceType, DevMgrPortInfo, InvalidCounterOperation, InvalidMeterOperation,
    InvalidRegisterOperation, StandardSyncHandler,
};

use super::entries::Target;
use super::{
    Standard, counters, digests, direct, entries, hashes, keys, listing, meters, ports, profiles,
    registers, value_sets,
};
use crate::errors::{application, context};

impl StandardSyncHandler for Standard {
    fn handle_bm_mt_get_num_entries(&self, cxt_id: i32, table_name: String) -> thrift::Result<i64> {
        let entries = self.read(cxt_id, move |program| {
            super::lookup::table(program.pipeline(), &table_name)?;
            Ok(listing::count(program, &table_name).unwrap_or(0))
        })?;
        Ok(i64::try_from(entries).unwrap_or(i64::MAX))
    }

    fn handle_bm_mt_clear_entries(
        &self,
        cxt_id: i32,
        table_name: String,
        reset_default_entry: bool,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let mut changing = self.control.begin(self.standing)?;
        let table = self
            .control
            .change_in_visits_as(&changing, move |program| {
                entries::clear_piece(program, &table_name, reset_default_entry)
            })?;
        changing.forget_entry(table, None);
        Ok(())
    }

    fn handle_bm_mt_get_entries(
        &self,
        cxt_id: i32,
        table_name: String,
    ) -> thrift::Result<Vec<BmMtEntry>> {
        let name = table_name.clone();
        let count = self.read(cxt_id, move |program| Ok(listing::count(program, &name)))?;
        let Some(count) = count else {
            return Ok(Vec::new());
        };
        let name = table_name.clone();
        let mut entries = self.list("entries", count, move |program, from| {
            listing::page(program, &name, from)
        })?;
        for entry in &mut entries {
            self.given.show(&table_name, entry);
        }
        Ok(entries)
    }

    fn handle_bm_mt_get_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
    ) -> thrift::Result<BmMtEntry> {
        let name = table_name.clone();
        let mut entry = self.read(cxt_id, move |program| {
            listing::by_handle(program, &name, entry_handle)
        })?;
        self.given.show(&table_name, &mut entry);
        Ok(entry)
    }

    fn handle_bm_mt_get_default_entry(
        &self,
        cxt_id: i32,
        table_name: String,
    ) -> thrift::Result<BmActionEntry> {
        self.read(cxt_id, move |program| {
            listing::default(program, &table_name)
        })
    }

    fn handle_bm_mt_get_entry_from_key(
        &self,
        cxt_id: i32,
        table_name: String,
        match_key: BmMatchParams,
        options: BmAddEntryOptions,
    ) -> thrift::Result<BmMtEntry> {
        if match_key.is_empty() {
            let default = self.handle_bm_mt_get_default_entry(cxt_id, table_name)?;
            return Ok(BmMtEntry {
                action_entry: Some(default),
                ..listing::no_entry()
            });
        }
        let name = table_name.clone();
        let mut entry = self.read(cxt_id, move |program| {
            listing::by_key(program, &name, &match_key, keys::priority(&options))
        })?;
        self.given.show(&table_name, &mut entry);
        Ok(entry)
    }

    fn handle_bm_mt_add_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        match_key: BmMatchParams,
        action_name: String,
        action_data: BmActionData,
        options: BmAddEntryOptions,
    ) -> thrift::Result<i32> {
        let priority = keys::priority(&options);
        self.add(cxt_id, table_name, match_key, move |program, table, key| {
            entries::add(program, table, key, &action_name, &action_data, priority)
        })
    }

    fn handle_bm_mt_modify_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
        action_name: String,
        action_data: BmActionData,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            entries::modify(
                program,
                &table_name,
                entry_handle,
                &action_name,
                &action_data,
            )
        })
    }

    fn handle_bm_mt_delete_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
    ) -> thrift::Result<()> {
        self.remove(cxt_id, move |program| {
            entries::delete(program, &table_name, entry_handle)
        })
    }

    fn handle_bm_mt_set_entry_ttl(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
        timeout_ms: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            entries::set_timeout(program, &table_name, entry_handle, timeout_ms)
        })
    }

    fn handle_bm_mt_set_default_action(
        &self,
        cxt_id: i32,
        table_name: String,
        action_name: String,
        action_data: BmActionData,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            entries::set_default(program, &table_name, &action_name, &action_data)
        })
    }

    fn handle_bm_mt_reset_default_entry(
        &self,
        cxt_id: i32,
        table_name: String,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            entries::reset_default(program, &table_name)
        })
    }

    fn handle_bm_mt_act_prof_add_member(
        &self,
        cxt_id: i32,
        act_prof_name: String,
        action_name: String,
        action_data: BmActionData,
    ) -> thrift::Result<i32> {
        self.change(cxt_id, move |program| {
            let (name, action) = (&act_prof_name, &action_name);
            profiles::add_member(program, name, action, &action_data)
        })
    }

    fn handle_bm_mt_act_prof_modify_member(
        &self,
        cxt_id: i32,
        act_prof_name: String,
        mbr_handle: i32,
        action_name: String,
        action_data: BmActionData,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            let (name, data) = (&act_prof_name, &action_data);
            profiles::modify_member(program, name, mbr_handle, &action_name, data)
        })
    }

    fn handle_bm_mt_act_prof_delete_member(
        &self,
        cxt_id: i32,
        act_prof_name: String,
        mbr_handle: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            profiles::delete_member(program, &act_prof_name, mbr_handle)
        })
    }

    fn handle_bm_mt_act_prof_create_group(
        &self,
        cxt_id: i32,
        act_prof_name: String,
    ) -> thrift::Result<i32> {
        self.change(cxt_id, move |program| {
            profiles::create_group(program, &act_prof_name)
        })
    }

    fn handle_bm_mt_act_prof_delete_group(
        &self,
        cxt_id: i32,
        act_prof_name: String,
        grp_handle: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            profiles::delete_group(program, &act_prof_name, grp_handle)
        })
    }

    fn handle_bm_mt_act_prof_add_member_to_group(
        &self,
        cxt_id: i32,
        act_prof_name: String,
        mbr_handle: i32,
        grp_handle: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            profiles::add_to_group(program, &act_prof_name, mbr_handle, grp_handle)
        })
    }

    fn handle_bm_mt_act_prof_remove_member_from_group(
        &self,
        cxt_id: i32,
        act_prof_name: String,
        mbr_handle: i32,
        grp_handle: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            profiles::remove_from_group(program, &act_prof_name, mbr_handle, grp_handle)
        })
    }

    fn handle_bm_mt_act_prof_get_members(
        &self,
        cxt_id: i32,
        act_prof_name: String,
    ) -> thrift::Result<Vec<BmMtActProfMember>> {
        let name = act_prof_name.clone();
        let count = self.read(cxt_id, move |program| {
            Ok(profiles::member_count(program, &name))
        })?;
        self.list("members", count, move |program, from| {
            Ok(profiles::members(program, &act_prof_name, from))
        })
    }

    fn handle_bm_mt_act_prof_get_member(
        &self,
        cxt_id: i32,
        act_prof_name: String,
        mbr_handle: i32,
    ) -> thrift::Result<BmMtActProfMember> {
        self.read(cxt_id, move |program| {
            profiles::get_member(program, &act_prof_name, mbr_handle)
        })
    }

    fn handle_bm_mt_act_prof_get_groups(
        &self,
        cxt_id: i32,
        act_prof_name: String,
    ) -> thrift::Result<Vec<BmMtActProfGroup>> {
        let name = act_prof_name.clone();
        let count = self.read(cxt_id, move |program| {
            Ok(profiles::group_count(program, &name))
        })?;
        self.list("groups", count, move |program, from| {
            Ok(profiles::groups(program, &act_prof_name, from))
        })
    }

    fn handle_bm_mt_act_prof_get_group(
        &self,
        cxt_id: i32,
        act_prof_name: String,
        grp_handle: i32,
    ) -> thrift::Result<BmMtActProfGroup> {
        self.read(cxt_id, move |program| {
            profiles::get_group(program, &act_prof_name, grp_handle)
        })
    }

    fn handle_bm_mt_indirect_add_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        match_key: BmMatchParams,
        mbr_handle: i32,
        options: BmAddEntryOptions,
    ) -> thrift::Result<i32> {
        let priority = keys::priority(&options);
        self.add(cxt_id, table_name, match_key, move |program, table, key| {
            let target = Target::Member(mbr_handle);
            entries::indirect_add(program, table, key, target, priority)
        })
    }

    fn handle_bm_mt_indirect_modify_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
        mbr_handle: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            let target = Target::Member(mbr_handle);
            entries::indirect_modify(program, &table_name, entry_handle, target)
        })
    }

    fn handle_bm_mt_indirect_delete_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
    ) -> thrift::Result<()> {
        self.remove(cxt_id, move |program| {
            entries::indirect_delete(program, &table_name, entry_handle)
        })
    }

    fn handle_bm_mt_indirect_set_entry_ttl(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
        timeout_ms: i32,
    ) -> thrift::Result<()> {
        self.handle_bm_mt_set_entry_ttl(cxt_id, table_name, entry_handle, timeout_ms)
    }

    fn handle_bm_mt_indirect_set_default_member(
        &self,
        cxt_id: i32,
        table_name: String,
        mbr_handle: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            entries::indirect_set_default(program, &table_name, Target::Member(mbr_handle))
        })
    }

    fn handle_bm_mt_indirect_reset_default_entry(
        &self,
        cxt_id: i32,
        table_name: String,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            entries::indirect_reset_default(program, &table_name)
        })
    }

    fn handle_bm_mt_indirect_ws_add_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        match_key: BmMatchParams,
        grp_handle: i32,
        options: BmAddEntryOptions,
    ) -> thrift::Result<i32> {
        let priority = keys::priority(&options);
        self.add(cxt_id, table_name, match_key, move |program, table, key| {
            let target = Target::Group(grp_handle);
            entries::indirect_add(program, table, key, target, priority)
        })
    }

    fn handle_bm_mt_indirect_ws_modify_entry(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
        grp_handle: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            let target = Target::Group(grp_handle);
            entries::indirect_modify(program, &table_name, entry_handle, target)
        })
    }

    fn handle_bm_mt_indirect_ws_set_default_group(
        &self,
        cxt_id: i32,
        table_name: String,
        grp_handle: i32,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            entries::indirect_set_default(program, &table_name, Target::Group(grp_handle))
        })
    }

    fn handle_bm_mt_read_counter(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
    ) -> thrift::Result<BmCounterValue> {
        self.read(cxt_id, move |program| {
            direct::read_counter(program, &table_name, entry_handle)
        })
    }

    fn handle_bm_mt_reset_counters(&self, cxt_id: i32, table_name: String) -> thrift::Result<()> {
        let mut from = 0;
        self.change_in_visits(cxt_id, move |program| {
            Ok(match direct::reset_piece(program, &table_name, from)? {
                Some(next) => {
                    from = next;
                    None
                }
                None => Some(()),
            })
        })
    }

    fn handle_bm_mt_write_counter(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
        value: BmCounterValue,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            direct::write_counter(program, &table_name, entry_handle, &value)
        })
    }

    fn handle_bm_mt_set_meter_rates(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
        rates: Vec<BmMeterRateConfig>,
    ) -> thrift::Result<()> {
        self.change(cxt_id, move |program| {
            direct::set_rates(program, &table_name, entry_handle, &rates)
        })
    }

    fn handle_bm_mt_get_meter_rates(
        &self,
        cxt_id: i32,
        table_name: String,
        entry_handle: i32,
    ) -> thrift::Result<Vec<BmMeterRateConfig>> {
        self.read(cxt_id, move |program| {
            direct::get_rates(program, &table_name, entry_handle)
        })
    }

    fn handle_bm_counter_read(
        &self,
        cxt_id: i32,
        counter_name: String,
        index: i32,
    ) -> thrift::Result<BmCounterValue> {
        context(cxt_id)?;
        self.control
            .read(move |program| counters::read(program, &counter_name, index))
    }

    fn handle_bm_counter_reset_all(&self, cxt_id: i32, counter_name: String) -> thrift::Result<()> {
        context(cxt_id)?;
        let mut from = 0;
        self.control
            .change_in_visits(self.standing, move |program| {
                let next = counters::reset_piece(program, &counter_name, from)?;
                from = next.unwrap_or(from);
                Ok::<_, InvalidCounterOperation>(next.is_none().then_some(()))
            })
    }

    fn handle_bm_counter_write(
        &self,
        cxt_id: i32,
        counter_name: String,
        index: i32,
        value: BmCounterValue,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        self.control.change(self.standing, move |program| {
            counters::write(program, &counter_name, index, &value)
        })
    }

    fn handle_bm_meter_array_set_rates(
        &self,
        cxt_id: i32,
        meter_array_name: String,
        rates: Vec<BmMeterRateConfig>,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let mut from = 0;
        self.control
            .change_in_visits(self.standing, move |program| {
                let next = meters::set_piece(program, &meter_array_name, &rates, from)?;
                from = next.unwrap_or(from);
                Ok::<_, InvalidMeterOperation>(next.is_none().then_some(()))
            })
    }

    fn handle_bm_meter_set_rates(
        &self,
        cxt_id: i32,
        meter_array_name: String,
        index: i32,
        rates: Vec<BmMeterRateConfig>,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        self.control.change(self.standing, move |program| {
            meters::set(program, &meter_array_name, index, &rates)
        })
    }

    fn handle_bm_meter_get_rates(
        &self,
        cxt_id: i32,
        meter_array_name: String,
        index: i32,
    ) -> thrift::Result<Vec<BmMeterRateConfig>> {
        context(cxt_id)?;
        self.control
            .read(move |program| meters::get(program, &meter_array_name, index))
    }

    fn handle_bm_register_read(
        &self,
        cxt_id: i32,
        register_array_name: String,
        idx: i32,
    ) -> thrift::Result<i64> {
        context(cxt_id)?;
        self.control
            .read(move |program| registers::read(program, &register_array_name, idx))
    }

    fn handle_bm_register_read_all(
        &self,
        cxt_id: i32,
        register_array_name: String,
    ) -> thrift::Result<Vec<i64>> {
        context(cxt_id)?;
        let name = register_array_name.clone();
        let size = self
            .control
            .read(move |program| registers::size(program, &name))?;
        self.begin_answer("cells", size)?;
        let (mut cells, mut from) = (Vec::new(), 0);
        self.control.read_in_visits(move |program| {
            let next = registers::read_piece(program, &register_array_name, from, &mut cells)?;
            from = next.unwrap_or(from);
            let is_done = next.is_none();
            Ok::<_, InvalidRegisterOperation>(is_done.then(|| std::mem::take(&mut cells)))
        })
    }

    fn handle_bm_register_write(
        &self,
        cxt_id: i32,
        register_array_name: String,
        index: i32,
        value: i64,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        self.control.change(self.standing, move |program| {
            registers::write(program, &register_array_name, index, value)
        })
    }

    fn handle_bm_register_write_range(
        &self,
        cxt_id: i32,
        register_array_name: String,
        start_index: i32,
        end_index: i32,
        value: i64,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let mut cells = None;
        self.control
            .change_in_visits(self.standing, move |program| {
                let name = &register_array_name;
                let (from, end) = match cells {
                    Some(cells) => cells,
                    None => registers::range(program, name, start_index, end_index)?,
                };
                let next = registers::write_piece(program, name, (from, end), value)?;
                cells = next.map(|next| (next, end));
                Ok::<_, InvalidRegisterOperation>(next.is_none().then_some(()))
            })
    }

    fn handle_bm_register_reset(
        &self,
        cxt_id: i32,
        register_array_name: String,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let mut from = 0;
        self.control
            .change_in_visits(self.standing, move |program| {
                let name = &register_array_name;
                let end = registers::size(program, name)?;
                let next = registers::write_piece(program, name, (from, end), 0)?;
                from = next.unwrap_or(from);
                Ok::<_, InvalidRegisterOperation>(next.is_none().then_some(()))
            })
    }

    fn handle_bm_parse_vset_add(
        &self,
        cxt_id: i32,
        parse_vset_name: String,
        value: Vec<u8>,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        self.control.change(self.standing, move |program| {
            value_sets::add(program, &parse_vset_name, &value)
        })
    }

    fn handle_bm_parse_vset_remove(
        &self,
        cxt_id: i32,
        parse_vset_name: String,
        value: Vec<u8>,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        self.control.change(self.standing, move |program| {
            value_sets::remove(program, &parse_vset_name, &value)
        })
    }

    fn handle_bm_parse_vset_get(
        &self,
        cxt_id: i32,
        parse_vset_name: String,
    ) -> thrift::Result<Vec<Vec<u8>>> {
        context(cxt_id)?;
        self.control
            .read(move |program| value_sets::get(program, &parse_vset_name))
    }

    fn handle_bm_parse_vset_clear(
        &self,
        cxt_id: i32,
        parse_vset_name: String,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        self.control.change(self.standing, move |program| {
            value_sets::clear(program, &parse_vset_name)
        })
    }

    fn handle_bm_learning_ack(
        &self,
        cxt_id: i32,
        list_id: i32,
        buffer_id: i64,
        _sample_ids: Vec<i32>,
    ) -> thrift::Result<()> {
        self.handle_bm_learning_ack_buffer(cxt_id, list_id, buffer_id)
    }

    fn handle_bm_learning_ack_buffer(
        &self,
        cxt_id: i32,
        list_id: i32,
        buffer_id: i64,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let digest = digests::number(self.text().as_deref(), list_id)?;
        let _changing = self.control.begin(self.standing)?;
        self.control
            .run(move |switch| switch.digest_acknowledge(digest, buffer_id.cast_unsigned()))
    }

    fn handle_bm_learning_set_timeout(
        &self,
        cxt_id: i32,
        list_id: i32,
        timeout_ms: i32,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let digest = digests::number(self.text().as_deref(), list_id)?;
        self.control.change(self.standing, move |program| {
            digests::configure(program, digest, |config| {
                config.max_timeout_ns = u64::from(timeout_ms.cast_unsigned()) * 1_000_000;
            })
        })
    }

    fn handle_bm_learning_set_buffer_size(
        &self,
        cxt_id: i32,
        list_id: i32,
        nb_samples: i32,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let digest = digests::number(self.text().as_deref(), list_id)?;
        self.control.change(self.standing, move |program| {
            digests::configure(program, digest, |config| {
                config.max_list_size = nb_samples.cast_unsigned();
            })
        })
    }

    fn handle_bm_set_crc16_custom_parameters(
        &self,
        cxt_id: i32,
        calc_name: String,
        crc16_config: BmCrc16Config,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let number = hashes::number(self.text().as_deref(), &calc_name)?;
        self.control.change(self.standing, move |program| {
            hashes::set(program, number, 16, hashes::crc16(&crc16_config))
        })
    }

    fn handle_bm_set_crc32_custom_parameters(
        &self,
        cxt_id: i32,
        calc_name: String,
        crc32_config: BmCrc32Config,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let number = hashes::number(self.text().as_deref(), &calc_name)?;
        self.control.change(self.standing, move |program| {
            hashes::set(program, number, 32, hashes::crc32(&crc32_config))
        })
    }

    fn handle_bm_set_toeplitz_hash_key(
        &self,
        cxt_id: i32,
        calc_name: String,
        _key: Vec<u8>,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        Err(hashes::toeplitz(self.text().as_deref(), &calc_name).into())
    }

    fn handle_bm_dev_mgr_add_port(
        &self,
        iface_name: String,
        port_num: i32,
        pcap_path: String,
    ) -> thrift::Result<()> {
        let _changing = self.control.begin(self.standing)?;
        let added = self
            .control
            .run(move |switch| ports::add(switch, &iface_name, port_num, &pcap_path))?;
        added.map_err(Into::into)
    }

    fn handle_bm_dev_mgr_remove_port(&self, port_num: i32) -> thrift::Result<()> {
        let _changing = self.control.begin(self.standing)?;
        let removed = self
            .control
            .run(move |switch| ports::remove(switch, port_num))?;
        removed.map_err(Into::into)
    }

    fn handle_bm_dev_mgr_show_ports(&self) -> thrift::Result<Vec<DevMgrPortInfo>> {
        let _reading = self.control.begin_read();
        self.control.run(|switch| ports::show(switch))
    }

    fn handle_bm_load_new_config(&self, config_str: String) -> thrift::Result<()> {
        self.load(config_str)
    }

    fn handle_bm_swap_configs(&self) -> thrift::Result<()> {
        self.swap()
    }

    fn handle_bm_get_config(&self) -> thrift::Result<String> {
        let text = self.text();
        let json = text.as_ref().map_or(&[][..], |text| text.json());
        Ok(String::from_utf8_lossy(json).into_owned())
    }

    fn handle_bm_get_config_md5(&self) -> thrift::Result<Vec<u8>> {
        let text = self.text();
        let md5 = text.map_or_else(|| crate::programs::Text::new(Vec::new()).md5(), |t| t.md5());
        Ok(md5.to_vec())
    }

    fn handle_bm_get_id_from_name(
        &self,
        cxt_id: i32,
        resource_type: BmResourceType,
        resource_name: String,
    ) -> thrift::Result<i32> {
        context(cxt_id)?;
        self.id(resource_type, &resource_name)
    }

    fn handle_bm_mgmt_get_info(&self) -> thrift::Result<BmConfig> {
        Ok(BmConfig::new(
            self.device_id.cast_signed(),
            i32::from(self.thrift_port),
            self.notifications.clone(),
            None,
            None,
        ))
    }

    fn handle_bm_reset_state(&self) -> thrift::Result<()> {
        self.reset()
    }

    fn handle_bm_serialize_state(&self) -> thrift::Result<String> {
        Err(application(
            "bm_serialize_state is not supported: read the state over P4Runtime",
        ))
    }
}
